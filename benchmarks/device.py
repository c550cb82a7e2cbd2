"""How exactly the use of a GPU follows from a thread's calls: 100 drawn loops on a simulated device, and the cost."""

import random
import time
from collections.abc import Callable, Iterator, Sequence
from statistics import median

from benchmarks import BenchmarkRow
from otel_zernel_libraries.training.device import DeviceUse, device_use
from otel_zernel_libraries.training.ledger import Position
from tests.libraries.training.device.simulated import Loop, Run, drawn, replayed, simulate

LOOPS = 100
SEED = 27
SHARE_ERROR = 0.02
"""The busy share that a driver reports is this far from the truth, at most."""
NEAR = 0.02
RANKS, SECONDS = 8, 60.0


def run() -> list[BenchmarkRow]:
    loops = list(drawn(LOOPS, SEED))
    rng = random.Random(SEED)
    without = [_timed(device_use, run.segments, None) for _, run in loops]
    shares = [min(max(run.busy_share + rng.uniform(-SHARE_ERROR, SHARE_ERROR), 0.0), 1.0) for _, run in loops]
    known = [_timed(device_use, run.segments, share) for (_, run), share in zip(loops, shares, strict=True)]
    rows = [
        *_accuracy("busy share known", loops, [use for use, _ in known], at_least=95),
        *_accuracy("busy share unknown", loops, [use for use, _ in without]),
        *_gains(loops, [use for use, _ in known]),
    ]
    lasted = sum(run.seconds for _, run in loops)
    rows.append(BenchmarkRow("device: solving, CPU time", f"{sum(s for _, s in known) / lasted * 1e3:.1f} ms/s a rank"))
    rows.append(_replay_cost(loops, [use for use, _ in known]))
    return rows


def _timed(call: Callable[..., DeviceUse | None], *arguments: object) -> tuple[DeviceUse, float]:
    began = time.thread_time()
    use = call(*arguments)
    assert use
    return use, time.thread_time() - began


def _accuracy(
    name: str, loops: Sequence[tuple[Loop, Run]], uses: Sequence[DeviceUse], at_least: int | None = None
) -> Iterator[BenchmarkRow]:
    errors, widths, within = [], [], 0
    for (_, run), use in zip(loops, uses, strict=True):
        truth = float(run.idle.sum())
        low, best, high = use.starved()
        errors.append(abs(best - truth) / run.seconds)
        widths.append((high - low) / run.seconds)
        within += low - 1e-3 * run.seconds <= truth <= high + 1e-3 * run.seconds
    near = sum(error <= NEAR for error in errors)
    bar = f">= {at_least}" if at_least else ""
    ok = near >= at_least if at_least else None
    yield BenchmarkRow(f"device: {name}, within 2 points", f"{near} of {len(loops)}", bar, ok)
    yield BenchmarkRow(f"device: {name}, truth in bounds", f"{within} of {len(loops)}", "all", within == len(loops))
    yield BenchmarkRow(f"device: {name}, median, worst error", f"{median(errors):.2%}, {max(errors):.1%}")
    open_ = [width for width in widths if width > 0.1]
    shown = f"{len(open_)} loops, median width {median(open_):.0%}" if open_ else "none"
    yield BenchmarkRow(f"device: {name}, bounds over 10 points", shown)


def _gains(loops: Sequence[tuple[Loop, Run]], uses: Sequence[DeviceUse]) -> Iterator[BenchmarkRow]:
    """The gain without a cause, against the same loop simulated again without it."""
    errors = []
    for number, ((loop, _), use) in enumerate(zip(loops, uses, strict=True)):
        before = simulate(loop, random.Random(number)).seconds
        for position in (Position.LOAD, Position.AFTER_STEP):
            if any(phase.position is position and phase.host for phase in loop.phases):
                gain = 1 - simulate(loop.without(position), random.Random(number)).seconds / before
                said = 1 - replayed(use, position) / replayed(use)
                errors.append(abs(said - gain))
    errors.sort()
    value = f"{median(errors):.2%}, {errors[int(0.9 * len(errors))]:.2%}"
    yield BenchmarkRow("device: gain by replay, median and p90 error", value)


def _replay_cost(loops: Sequence[tuple[Loop, Run]], uses: Sequence[DeviceUse]) -> BenchmarkRow:
    began = time.thread_time()
    for use in uses:
        replayed(use)
    cost = (time.thread_time() - began) / sum(run.seconds for _, run in loops) * RANKS * SECONDS
    return BenchmarkRow("device: replay of 60 s of 8 ranks, once", f"{cost:.2f} s", "< 0.5 s", cost < 0.5)
