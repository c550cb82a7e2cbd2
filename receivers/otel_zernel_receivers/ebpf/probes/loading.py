"""Loads the BPF objects in the best attach mode that works.

Each mode is tried on a function of the collector itself.
"""

import errno
import platform
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from otel_zernel_libraries.histograms.hdr import HdrLayout
from otel_zernel_receivers.ebpf.kernel.kernel_structs import SETTINGS
from otel_zernel_receivers.ebpf.kernel.libbpf import Link, Object
from otel_zernel_receivers.ebpf.kernel.libbpf_calls import BpfError, missing
from otel_zernel_receivers.ebpf.kernel.unavailable import Unavailable, explain
from otel_zernel_receivers.ebpf.kernel.versions import FOUR_ARGUMENTS, RUNNING, SESSION_CONTEXT
from otel_zernel_receivers.ebpf.probes.attach_modes import (
    SAMPLER,
    AttachPoint,
    Mode,
    attach,
    attach_tracepoints,
    prepare,
)
from otel_zernel_receivers.ebpf.probes.calibration import ENTRY_PROBE, PROBE, OwnFunction
from otel_zernel_receivers.ebpf.probes.calls import Operation
from otel_zernel_receivers.ebpf.probes.cost import ProbeCost, coldness_of
from otel_zernel_receivers.ebpf.tables.series import SeriesReading
from otel_zernel_receivers.ebpf.tables.tables import Limits, Tables

_SCHEDULER = ("sched_switch", "sched_switch_old")
_OMITTED = (
    ("sched_switch_old",),
    ("sched_switch",),
    ("sched_switch_old", SAMPLER),
    ("sched_switch", SAMPLER),
    (*_SCHEDULER, "pages_mapped", SAMPLER),
    (*_SCHEDULER, "pages_mapped", SAMPLER, "system_call_exit"),
)
"""The programs that are left out in each trial.

`sched_switch` needs Linux 5.18, and `sched_switch_old` is for older kernels. The later trials give up the samples, then
the time off the CPU and the page faults on files, then also reads.
"""

_TIME_OFF_CPU = "time off the CPU"
_COUNTED = {
    **dict.fromkeys(_SCHEDULER, _TIME_OFF_CPU),
    "pages_mapped": "page faults on files",
    SAMPLER: "samples of the code that threads run",
    "system_call_exit": "reads",
}
"""The quantities that these programs count, in words for messages."""
_TRIAL_CALLS = 7
_CALIBRATION_CALLS = 2000
_BURSTS = 20
_COLD_CALLS = 600


@dataclass(frozen=True, slots=True)
class LoadedProbes:
    """The loaded object, with its tables and attached tracepoints."""

    bpf: Object
    mode: Mode
    tables: Tables
    tracepoints: Link
    cost: ProbeCost
    reasons: tuple[str, ...] = ()
    """The errors of better modes, and of programs that were left out."""

    refused: tuple[str, ...] = ()
    """The programs that this kernel should accept, but has refused."""

    @property
    def not_counted(self) -> tuple[str, ...]:
        """The quantities that cannot be counted on this kernel, in words for messages."""
        counted = {_COUNTED.get(name) for name in self.bpf.programs}
        return tuple(words for words in dict.fromkeys(_COUNTED.values()) if words not in counted)

    def close(self) -> None:
        """Detaches and unloads."""
        self.tracepoints.close()
        self.bpf.close()


class NotLoaded(BpfError):
    """The kernel refused the programs. It may accept fewer of them."""


Verify = Callable[[Limits, Mode, str, Sequence[str]], Object]
"""`verified`."""


def load(limits: Limits, modes: tuple[Mode, ...] = tuple(Mode), verify: Verify | None = None) -> LoadedProbes:
    """Loads with the first of the modes that counts trial calls exactly. Raises Unavailable. `verify` replaces
    `verified`."""
    if sentence := missing():
        raise Unavailable(sentence)
    reasons: list[str] = []
    for mode in modes:
        for variant in variants(mode):
            try:
                loaded = load_variant(limits, mode, variant, verify=verify or verified)
                return replace(loaded, reasons=(*reasons, *loaded.reasons))
            except OSError as error:
                reasons.append(f"{mode} ({variant}): {error}")
    raise Unavailable(explain(reasons), reasons)


def variants(mode: Mode) -> tuple[str, ...]:
    """The objects for a mode, the likely one first: Linux 7.0 changed a kfunc of sessions."""
    if mode is not Mode.SESSION:
        return ("classic",)
    likely = ("session", "session_ctx")
    return likely[::-1] if RUNNING >= SESSION_CONTEXT else likely


def load_variant(
    limits: Limits,
    mode: Mode,
    variant: str,
    trials: Sequence[Sequence[str]] = _OMITTED,
    verify: Verify | None = None,
) -> LoadedProbes:
    """Loads one object with as many of its programs as this kernel accepts.

    Each of `trials` names the programs that it leaves out. Raises the OSError of the last trial, which leaves out the
    most programs.
    """
    refused: list[str] = []
    different = omissions(variant, trials)
    verify = verify or verified
    for omitted in different[:-1]:
        try:
            loaded = _load(limits, mode, variant, omitted, verify)
        except NotLoaded as error:
            if error.errno == errno.EPERM:  # the kernel would refuse every program
                raise
            refused.append(f"{mode} ({variant}, without {', '.join(omitted) or 'none'}): {error}")
        else:
            return replace(loaded, reasons=tuple(refused) if loaded.refused else ())
    return replace(_load(limits, mode, variant, different[-1], verify), reasons=tuple(refused))


def omissions(variant: str, trials: Sequence[Sequence[str]] = _OMITTED) -> list[tuple[str, ...]]:
    """The programs of the object that each different trial leaves out."""
    return list(dict.fromkeys(tuple(name for name in trial if _has(variant, name)) for trial in trials))


def _has(variant: str, program: str) -> bool:
    """Whether the object has the program. Session objects have none for kernels without sessions."""
    return program != "sched_switch_old" or variant == "classic"


def _has_swap() -> bool:
    return re.search(rb"^SwapTotal: +0 kB$", Path("/proc/meminfo").read_bytes(), re.MULTILINE) is None


def verified(limits: Limits, mode: Mode, variant: str, omitted: Sequence[str]) -> Object:
    """The object without some of its programs, verified by the kernel. Raises BpfError, NotLoaded if it is refused."""
    bpf = opened(limits, mode, variant, omitted)
    try:
        bpf.load()
    except BpfError as error:
        bpf.close()
        raise NotLoaded(*error.args) from error
    return bpf


def opened(limits: Limits, mode: Mode, variant: str, omitted: Sequence[str]) -> Object:
    """The same, not yet loaded. Raises BpfError."""
    bpf = Object(Path(__file__).parents[1] / "objects" / platform.machine() / f"{variant}.bpf.o")
    try:
        limits.apply(bpf.maps)
        namespace = Path("/proc/self/ns/pid").stat()
        layout = limits.layout
        bpf.constants.initialize(
            SETTINGS.pack(
                namespace.st_dev,
                namespace.st_ino,
                layout.magnitude,
                layout.length,
                round(limits.long_wait * 1e9),
                "pages_mapped" not in omitted,
                not (bpf.programs.keys() & set(_SCHEDULER)) <= set(omitted),
                _has_swap(),
                round(limits.shortest_wait * 1e9),
            )
        )
        for name in bpf.programs.keys() & set(omitted):
            bpf.programs.pop(name).skip()
        prepare(bpf, mode)
    except BaseException:
        bpf.close()
        raise
    return bpf


def _load(limits: Limits, mode: Mode, variant: str, omitted: Sequence[str], verify: Verify) -> LoadedProbes:
    bpf = verify(limits, mode, variant, omitted)
    try:
        tables = Tables(bpf.maps, limits.layout)
        cost = _calibrate(bpf, mode, tables, limits.layout)
        _forget_collector(tables)
        absent = _SCHEDULER[0 if RUNNING < FOUR_ARGUMENTS and _SCHEDULER[1] in bpf.programs else 1]
        refused = tuple(name for name in omitted if name != absent)
        return LoadedProbes(bpf, mode, tables, attach_tracepoints(bpf), cost, refused=refused)
    except BaseException:
        bpf.close()
        raise


def _calibrate(bpf: Object, mode: Mode, tables: Tables, layout: HdrLayout) -> ProbeCost:
    with OwnFunction() as function:
        bare_ns = _fastest(function)
        entry_ns = _entry_only(bpf, mode, function) - bare_ns
        link = attach(bpf, mode, function.path, [AttachPoint(PROBE, function.offset)])
        try:
            function.call(_TRIAL_CALLS)
            counted = sum(int(reading.counts.sum()) for reading in _calibration(tables))
            if counted != _TRIAL_CALLS:
                raise BpfError(0, f"attached, but counted {counted} of {_TRIAL_CALLS} trial calls")
            probed_ns = _fastest(function)
            (reading,) = _calibration(tables)
            between_work_ns = function.added_between_work(_COLD_CALLS)
        finally:
            link.close()
    middle = reading.index[reading.counts.cumsum().searchsorted(_CALIBRATION_CALLS / 2)]
    call_ns = max(probed_ns - bare_ns, 0.0)
    entry_ns = min(max(entry_ns, 0.0), call_ns)
    # Only a session can decide at a call's entry not to probe its return.
    nested_ns = entry_ns if mode is Mode.SESSION else call_ns
    coldness = coldness_of(call_ns, between_work_ns)
    return ProbeCost(int(layout.lowest(middle)), call_ns, nested_ns, entry_ns, coldness)


def _entry_only(bpf: Object, mode: Mode, function: OwnFunction) -> float:
    link = attach(bpf, mode, function.path, [AttachPoint(ENTRY_PROBE, function.offset)])
    try:
        return _fastest(function)
    finally:
        link.close()


def _fastest(function: OwnFunction) -> float:
    """The shortest average duration of a call over several bursts, ns: other processes do not disturb every burst."""
    return min(function.call(_CALIBRATION_CALLS // _BURSTS) for _ in range(_BURSTS))


def _forget_collector(tables: Tables) -> None:
    """Frees the collector's own row for other processes: it is marked as ended, and two readings later it is free."""
    for collector in tables.rows.live():
        tables.rows.end(collector)
    for _ in range(2):
        tables.read()


def _calibration(tables: Tables) -> list[SeriesReading]:
    return [reading for reading in tables.read().series if reading.operation == Operation.CALIBRATION]
