"""The CPU time that each part of the receiver adds to a step of a training, and the receiver's own estimate of it.

Needs root, Linux 6.6 and PyTorch, and takes eight minutes. Jobs with steps of about 0.3, 3 and 30 ms train short
blocks, in turns without and with a part of the receiver, so that drift affects both equally. The value of a block is
the median CPU time of a step on the training thread. The added time is the mean of the middle half of the pairs of
blocks, with its 95 % interval from bootstrap samples of the pairs. Real-time priority keeps other programs from
interrupting a step.

The part `nothing` is the control: its interval shows the noise. The estimate is that of `zernel.probe.time`, which
covers probes and no tracepoints.

Names of parts select them: python -m benchmarks.ebpf.probe_cost operators all
"""

import os
import statistics
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, closing, contextmanager, suppress
from dataclasses import dataclass, field
from functools import partial
from importlib.util import find_spec
from pathlib import Path

from benchmarks import BenchmarkRow
from benchmarks.ebpf.ebpf_torch import estimate
from benchmarks.training.watched_training import Training, training, why_not
from otel_zernel_receivers.ebpf.budget.overhead import Group, group_of
from otel_zernel_receivers.ebpf.budget.scaling import probe_seconds
from otel_zernel_receivers.ebpf.probes.attach_modes import AttachPoint, attach, attach_tracepoints
from otel_zernel_receivers.ebpf.probes.libraries import PROBES, find_attach_points
from otel_zernel_receivers.ebpf.probes.loading import LoadedProbes, load
from otel_zernel_receivers.ebpf.processes.files.used_files import MappedLibrary
from otel_zernel_receivers.ebpf.tables.process_table import HitCount
from otel_zernel_receivers.ebpf.tables.tables import Limits

SECONDS, FEWEST_PAIRS = 430.0, 50
"""The run ends after so many seconds, but not before it has this number of pairs of each part."""
SETTLING = 2
"""Steps at the beginning of a block that do not count, because caches are cold."""
AGREEMENT = 0.2
"""The part of the added time by which the estimate may differ from it."""
SHARE = 0.005
"""The goal for a step of 30 ms with up to 100 hits."""
LIBRARIES = (MappedLibrary.TORCH_CPU, MappedLibrary.TORCH_PYTHON, MappedLibrary.C10)


@dataclass(frozen=True, slots=True)
class Model:
    """The arguments of `training`."""

    width: int
    batch: int
    steps: int
    layers: int


MODELS = {"0.3 ms": Model(16, 32, 250, 2), "3 ms": Model(256, 128, 26, 2), "30 ms": Model(176, 64, 6, 64)}
"""The last one has some 100 hits in a step."""


@dataclass(slots=True)
class Measured:
    """One job and one part."""

    alone_us: list[float] = field(default_factory=list)
    """CPU time of a step, in each block."""
    watched_us: list[float] = field(default_factory=list)
    hits: list[float] = field(default_factory=list)
    """In a step."""
    estimated_us: list[float] = field(default_factory=list)
    """Time of the probes in a step, by the receiver."""


class Parts:
    """The parts of the receiver, each to be attached alone."""

    def __init__(self, loaded: LoadedProbes) -> None:
        loaded.tracepoints.close()
        self._bpf, self._mode = loaded.bpf, loaded.mode
        self._places = dict(_places())
        self.attach: dict[str, Callable[[ExitStack], None]] = {
            "nothing": lambda stack: None,
            "tracepoints": self._tracepoints,
            "empty probes": partial(self._probes, takes=lambda place: True, program="empty"),
            "scopes": partial(self._probes, takes=lambda place: group_of(place.probe) is None),
            "operators": partial(self._probes, takes=lambda place: group_of(place.probe) is Group.OPERATORS),
            "all": self._all,
        }

    @contextmanager
    def on(self, part: str) -> Iterator[None]:
        """Attaches a part."""
        with ExitStack() as stack:
            self.attach[part](stack)
            yield

    def _tracepoints(self, stack: ExitStack) -> None:
        stack.enter_context(closing(attach_tracepoints(self._bpf)))

    def _probes(self, stack: ExitStack, takes: Callable[[AttachPoint], bool], program: str = "probe") -> None:
        for path, places in self._places.items():
            if chosen := [place for place in places if takes(place)]:
                stack.enter_context(closing(attach(self._bpf, self._mode, path, chosen, program)))

    def _all(self, stack: ExitStack) -> None:
        self._tracepoints(stack)
        self._probes(stack, lambda place: True)


def _places() -> Iterator[tuple[str, tuple[AttachPoint, ...]]]:
    spec = find_spec("torch")
    assert spec
    assert spec.origin
    for library in LIBRARIES:
        path = Path(spec.origin).parent / "lib" / f"lib{library}.so"
        with path.open("rb") as file:
            yield str(path), find_attach_points(file.fileno(), PROBES[library]).probed


def run(names: Sequence[str] = ()) -> list[BenchmarkRow]:
    """A row for each part and job."""
    if reason := why_not():
        return [BenchmarkRow("eBPF: CPU time of probes", f"skipped: {reason}")]
    with closing(load(Limits())) as loaded, first_in_line(), ExitStack() as stack:
        jobs = {
            name: stack.enter_context(training(one.width, one.batch, one.steps, one.layers))
            for name, one in MODELS.items()
        }
        parts = Parts(loaded)
        measured = _measure(loaded, parts, names or tuple(parts.attach), jobs)
    return [_row(part, name, one) for (part, name), one in measured.items()]


@contextmanager
def first_in_line() -> Iterator[None]:
    """Gives this process and its jobs real-time priority, if it may have that."""
    with suppress(PermissionError):
        os.sched_setscheduler(0, os.SCHED_FIFO, os.sched_param(1))
    try:
        yield
    finally:
        with suppress(PermissionError):
            os.sched_setscheduler(0, os.SCHED_OTHER, os.sched_param(0))


def _measure(
    loaded: LoadedProbes, parts: Parts, names: Sequence[str], jobs: dict[str, Training]
) -> dict[tuple[str, str], Measured]:
    """All parts in turns, with a block of each job without the part before or after each."""
    found = {(part, name): Measured() for part in names for name in jobs}
    end, pair = time.monotonic() + SECONDS, 0
    while pair < FEWEST_PAIRS or time.monotonic() < end:
        for part in names:
            for is_on in (False, True) if pair % 2 else (True, False):
                with parts.on(part if is_on else "nothing"):
                    for name, job in jobs.items():
                        _add_block(found[part, name], loaded, job, is_on=is_on)
        pair += 1
    return found


def _add_block(measured: Measured, loaded: LoadedProbes, job: Training, *, is_on: bool) -> None:
    before, began = loaded.tables.hits(), time.monotonic()
    steps = job.train().cpu
    (measured.watched_us if is_on else measured.alone_us).append(1e6 * statistics.median(steps[SETTLING:]))
    seconds = time.monotonic() - began
    hits = {
        process: count.since(before.get(process, HitCount(0)))
        for process, count in loaded.tables.hits().items()
        if process.pid == job.process.pid
    }
    if is_on and hits:
        measured.hits.append(sum(count.all for count in hits.values()) / len(steps))
        spent_s = sum(probe_seconds({}, hits, loaded.cost, seconds).values())
        measured.estimated_us.append(1e6 * spent_s / len(steps))


def _row(part: str, name: str, measured: Measured) -> BenchmarkRow:
    step = statistics.median(measured.alone_us)
    pairs = list(zip(measured.alone_us, measured.watched_us, strict=True))
    added = estimate([watched - alone for alone, watched in pairs])
    value = (
        f"{added.middle:+.1f} us ({added.low:+.1f} to {added.high:+.1f}) in {len(pairs)} pairs, "
        f"{added.middle / step:+.2%} of {step:,.0f} us"
    )
    label = f"eBPF: {part}, step of {name}"
    if not (measured.hits and statistics.fmean(measured.hits)):
        return BenchmarkRow(label, value)
    hits, estimated = statistics.fmean(measured.hits), statistics.fmean(measured.estimated_us)
    value += f", {hits:.0f} hits, estimate {estimated:.1f} us"
    if part == "all" and name == "30 ms":
        is_decided = added.high / step <= SHARE or added.low / step > SHARE
        return BenchmarkRow(label, value, f"<= {SHARE:.1%}", added.high / step <= SHARE if is_decided else None)
    low, high = (1 - AGREEMENT) * added.middle, (1 + AGREEMENT) * added.middle
    is_decided = added.high - added.low < 2 * AGREEMENT * added.middle
    return BenchmarkRow(label, value, f"within {AGREEMENT:.0%}", low <= estimated <= high if is_decided else None)


if __name__ == "__main__":
    for row in run(sys.argv[1:]):
        print(row.name, row.value, row.bar, row.ok)
