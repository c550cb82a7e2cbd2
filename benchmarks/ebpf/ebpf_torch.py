"""The slowdown of a training that a collector watches.

Needs root, Linux 6.13 and PyTorch, and takes three minutes. A job trains blocks of steps, alternately alone and watched
(alone, watched, watched, alone, ...), so that drift affects both equally. The value of a block is its median step. The
slowdown is the mean of the middle half of the pairs, with its 95 % interval from bootstrap samples of the pairs.

CPU time of the training thread includes the probes, and little of other programs. Wall-clock time is the loss of a job
on an idle machine. The control compares pairs of blocks without a collector: it shows the noise. The cost of scopes is
most visible in short steps.

No other program may probe PyTorch at the same time.
"""

import random
import statistics
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, closing, nullcontext
from dataclasses import dataclass

from benchmarks import BenchmarkRow
from benchmarks.training.watched_training import Training, collector, training, why_not
from otel_zernel.clock import SystemClock
from otel_zernel.testing import make_context
from otel_zernel_receivers.ebpf.config import EbpfConfig
from tests.receivers.ebpf.watching import Watch, doubles, numbers

PAIRS = 24
LONG, SHORT = (1024, 192, 80), (16, 32, 1000)
"""Width, batch and steps of a block: about 35 ms and 0.3 ms a step."""
SETTLING = 5
"""Steps at the beginning of a block that do not count, because caches are cold."""
SLOWDOWN_BAR = 0.01
DRAWS = 2000

Watching = Callable[[], AbstractContextManager[object]]


@dataclass(frozen=True, slots=True)
class TimedBlock:
    """The median duration of a step in one block, in seconds."""

    wall: float
    cpu: float
    short: float


@dataclass(frozen=True, slots=True)
class Estimate:
    """A value and its 95 % interval."""

    middle: float
    low: float
    high: float


def run() -> list[BenchmarkRow]:
    """All rows."""
    if reason := why_not():
        return [BenchmarkRow("eBPF: slowdown of a training", f"skipped: {reason}")]
    alone, watched = measure(collector)
    wall, cpu, control = (
        slowdown([one.wall for one in alone], [one.wall for one in watched]),
        slowdown([one.cpu for one in alone], [one.cpu for one in watched]),
        slowdown(*_in_turns([one.cpu for one in alone])),
    )
    added = estimate([(one.short - other.short) * 1e6 for other, one in zip(alone, watched, strict=True)])
    step_ms = statistics.median(one.cpu for one in alone) * 1e3
    return [
        _judged(f"eBPF: slowdown of a {step_ms:.0f} ms step, CPU time", cpu),
        _judged("eBPF: the same in wall-clock time", wall),
        BenchmarkRow("eBPF: control: blocks without a collector, CPU time", _percent(control)),
        BenchmarkRow(
            "eBPF: CPU time added to a short step", f"{added.middle:.0f} us ({added.low:.0f} to {added.high:.0f})"
        ),
        BenchmarkRow("eBPF: the receiver's own estimate", _own_estimate()),
    ]


def _own_estimate() -> str:
    """The probe hits in a short step, and their cost by `zernel.probe.time`."""
    with training(*SHORT) as job, closing(Watch(EbpfConfig(), make_context(clock=SystemClock()))) as watch:
        watch.attach()
        steps = len(job.train().cpu)
        batch, pid = watch.read(), job.process.pid
    hits = sum(numbers(batch, "zernel.probe.hits", process_pid=pid)) / steps
    seconds = sum(doubles(batch, "zernel.probe.time", process_pid=pid)) / steps
    return f"{hits:.0f} hits, {seconds * 1e6:.0f} us"


def measure(watching: Watching, pairs: int = PAIRS) -> tuple[list[TimedBlock], list[TimedBlock]]:
    """Blocks of training alone and with `watching`. The nth of each are adjacent in time."""
    alone: list[TimedBlock] = []
    watched: list[TimedBlock] = []
    with training(*LONG) as long, training(*SHORT) as short:
        turns: list[tuple[Watching, list[TimedBlock]]] = [(nullcontext, alone), (watching, watched)]
        for _ in range(pairs):
            for watch, blocks in turns:
                with watch():
                    blocks.append(_block(long, short))
            turns.reverse()
    return alone, watched


def _block(long: Training, short: Training) -> TimedBlock:
    steps = long.train()
    return TimedBlock(*map(_median, (steps.wall, steps.cpu, short.train().cpu)))


def _median(seconds: Sequence[float]) -> float:
    return statistics.median(seconds[SETTLING:])


def slowdown(alone: Sequence[float], watched: Sequence[float]) -> Estimate:
    """The slowdown over pairs of durations; 0.01 is 1 %."""
    return estimate([slow / fast - 1 for fast, slow in zip(alone, watched, strict=True)])


def estimate(values: Sequence[float]) -> Estimate:
    """The mean of the middle half of the values, and its 95 % interval by bootstrap."""
    draw = random.Random(0)  # the same values give the same interval
    means = [_middle(draw.choices(values, k=len(values))) for _ in range(DRAWS)]
    *_, high = cuts = statistics.quantiles(means, n=40)
    return Estimate(_middle(values), cuts[0], high)


def _middle(values: Sequence[float]) -> float:
    cut = len(values) // 4
    return statistics.fmean(sorted(values)[cut : len(values) - cut])


def _in_turns(blocks: Sequence[float]) -> tuple[list[float], list[float]]:
    """Adjacent blocks of one kind, paired in the order of `measure`."""
    pairs = list(zip(blocks[::2], blocks[1::2], strict=False))
    turned = [pair if number % 2 == 0 else pair[::-1] for number, pair in enumerate(pairs)]
    return [first for first, _ in turned], [second for _, second in turned]


def _judged(name: str, found: Estimate) -> BenchmarkRow:
    """A row that passes or fails only if the whole interval is on one side of the target."""
    decided = found.high <= SLOWDOWN_BAR or found.low > SLOWDOWN_BAR
    value = _percent(found) + ("" if decided else ", not decided")
    return BenchmarkRow(name, value, f"<= {SLOWDOWN_BAR:.0%}", found.high <= SLOWDOWN_BAR if decided else None)


def _percent(found: Estimate) -> str:
    return f"{found.middle:.2%} ({found.low:.2%} to {found.high:.2%})"
