"""Loading the BPF side in the best way that works here: tried on a function of our own, not guessed from versions."""

import errno
import platform
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from otel_zernel.otlp.histograms import HdrLayout
from otel_zernel_receivers.ebpf.kernel.kernel_structs import SETTINGS
from otel_zernel_receivers.ebpf.kernel.libbpf import Link, Object
from otel_zernel_receivers.ebpf.kernel.libbpf_calls import BpfError, missing
from otel_zernel_receivers.ebpf.kernel.unavailable import Unavailable, explain
from otel_zernel_receivers.ebpf.kernel.versions import RUNNING, SESSION_CONTEXT
from otel_zernel_receivers.ebpf.probes.attach_modes import Mode, Place, attach, attach_tracepoints, prepare
from otel_zernel_receivers.ebpf.probes.calibration import ENTRY_PROBE, PROBE, OwnFunction
from otel_zernel_receivers.ebpf.probes.catalogue import Operation
from otel_zernel_receivers.ebpf.tables.series import SeriesReading
from otel_zernel_receivers.ebpf.tables.tables import Limits, Tables

_LEFT_OUT = (
    ("sched_switch_old",),
    ("sched_switch",),
    ("sched_switch", "sched_switch_old"),
    ("sched_switch", "sched_switch_old", "system_call_exit"),
)
"""Programs that are not loaded, in the order of trial. `sched_switch` needs Linux 5.18, `sched_switch_old` is for older
kernels; the last trials do without times off the CPU, then without reads."""

_TRIAL_CALLS = 7
_CALIBRATION_CALLS = 2000
_BURSTS = 20


@dataclass(frozen=True, slots=True)
class Cost:
    """What a probe adds, measured on a function that does nothing."""

    floor_ns: int
    """To what is recorded: what such a call reads, the median."""
    call_ns: float
    """To the duration of a call."""
    nested_ns: float
    """To the duration of a call inside of one that counts for both."""


@dataclass(frozen=True, slots=True)
class Loaded:
    """The BPF side at work."""

    bpf: Object
    mode: Mode
    tables: Tables
    tracepoints: Link
    cost: Cost
    reasons: tuple[str, ...] = ()
    """Why no better mode was taken, and why not all programs were."""

    @property
    def unseen(self) -> tuple[str, ...]:
        """What this kernel does not let us count, for people to read."""
        programs = self.bpf.programs
        scheduler = () if {"sched_switch", "sched_switch_old"} & programs.keys() else ("time off the CPU",)
        return scheduler + (() if "system_call_exit" in programs else ("reads",))

    def close(self) -> None:
        """Detaches and unloads."""
        self.tracepoints.close()
        self.bpf.close()


class NotLoaded(BpfError):
    """The kernel took no such programs; it may take fewer."""


def load(limits: Limits, modes: tuple[Mode, ...] = tuple(Mode)) -> Loaded:
    """Loads by the first of the modes that counts calls exactly. Raises Unavailable."""
    if sentence := missing():
        raise Unavailable(sentence)
    reasons: list[str] = []
    for mode in modes:
        for variant in variants(mode):
            try:
                loaded = load_variant(limits, mode, variant)
                return replace(loaded, reasons=(*reasons, *loaded.reasons))
            except OSError as error:
                reasons.append(f"{mode} ({variant}): {error}")
    raise Unavailable(explain(reasons), reasons)


def variants(mode: Mode) -> tuple[str, ...]:
    """The objects for a mode, the likely one first: Linux 7.0 changed the kfuncs of sessions."""
    if mode is not Mode.SESSION:
        return ("classic",)
    likely = ("session", "session_ctx")
    return likely[::-1] if RUNNING >= SESSION_CONTEXT else likely


def load_variant(limits: Limits, mode: Mode, variant: str, trials: Sequence[Sequence[str]] = _LEFT_OUT) -> Loaded:
    """Loads one object with as many of its programs as this kernel takes.

    `trials` names for each trial the programs that are not loaded. Raises OSError, that of the last trial: the programs
    that it needs are those that no trial does without.
    """
    refused: list[str] = []
    different = list(dict.fromkeys(tuple(name for name in trial if _has(variant, name)) for trial in trials))
    for left_out in different[:-1]:
        try:
            loaded = _load(limits, mode, variant, left_out)
        except NotLoaded as error:
            if error.errno == errno.EPERM:  # no program would be taken
                raise
            refused.append(f"{mode} ({variant}, without {', '.join(left_out) or 'none'}): {error}")
        else:
            return replace(loaded, reasons=tuple(refused) if loaded.unseen else ())
    return replace(_load(limits, mode, variant, different[-1]), reasons=tuple(refused))


def _has(variant: str, program: str) -> bool:
    """Whether the object may have it: kernels with sessions need no program for older ones."""
    return program != "sched_switch_old" or variant == "classic"


def _load(limits: Limits, mode: Mode, variant: str, left_out: Sequence[str]) -> Loaded:
    bpf = Object(Path(__file__).parents[1] / "objects" / platform.machine() / f"{variant}.bpf.o")
    try:
        limits.apply(bpf.maps)
        namespace = Path("/proc/self/ns/pid").stat()
        layout = limits.layout
        bpf.constants.initialize(
            SETTINGS.pack(
                namespace.st_dev, namespace.st_ino, layout.magnitude, layout.length, round(limits.long_wait * 1e9)
            )
        )
        for name in bpf.programs.keys() & set(left_out):
            bpf.programs.pop(name).skip()
        prepare(bpf, mode)
        try:
            bpf.load()
        except BpfError as error:
            raise NotLoaded(*error.args) from error
        tables = Tables(bpf.maps, layout)
        cost = _calibrate(bpf, mode, tables, layout)
        _forget_collector(tables)
        return Loaded(bpf, mode, tables, attach_tracepoints(bpf), cost)
    except BaseException:
        bpf.close()
        raise


def _calibrate(bpf: Object, mode: Mode, tables: Tables, layout: HdrLayout) -> Cost:
    with OwnFunction() as function:
        bare_ns = _fastest(function)
        nested_ns = _nested(bpf, mode, function) - bare_ns
        link = attach(bpf, mode, function.path, [Place(PROBE, function.offset)])
        try:
            function.call(_TRIAL_CALLS)
            seen = sum(int(reading.counts.sum()) for reading in _calibration(tables))
            if seen != _TRIAL_CALLS:
                raise BpfError(0, f"attached, but saw {seen} of {_TRIAL_CALLS} calls")
            probed_ns = _fastest(function)
            (reading,) = _calibration(tables)
        finally:
            link.close()
    middle = reading.index[reading.counts.cumsum().searchsorted(_CALIBRATION_CALLS / 2)]
    call_ns = max(probed_ns - bare_ns, 0.0)
    # Only a session can leave out the return of a call when it begins.
    return Cost(int(layout.lowest(middle)), call_ns, min(nested_ns, call_ns) if mode is Mode.SESSION else call_ns)


def _nested(bpf: Object, mode: Mode, function: OwnFunction) -> float:
    link = attach(bpf, mode, function.path, [Place(ENTRY_PROBE, function.offset)])
    try:
        return _fastest(function)
    finally:
        link.close()


def _fastest(function: OwnFunction) -> float:
    """The ns of a call, less what others take of this CPU: they do not meet every burst of calls."""
    return min(function.call(_CALIBRATION_CALLS // _BURSTS) for _ in range(_BURSTS))


def _forget_collector(tables: Tables) -> None:
    """Gives our own row to a process that trains: it ends, and two readings later it is free."""
    for collector in tables.rows.live():
        tables.rows.end(collector)
    for _ in range(2):
        tables.read()


def _calibration(tables: Tables) -> list[SeriesReading]:
    return [reading for reading in tables.read().series if reading.operation == Operation.CALIBRATION]
