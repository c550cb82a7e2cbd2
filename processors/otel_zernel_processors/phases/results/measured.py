"""The measured steps of one process and the facts about it: what its causes follow from."""

import operator
from collections import defaultdict, deque
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Final

import numpy as np

from otel_zernel_libraries.training import semconv
from otel_zernel_libraries.training.causes import (
    Facts,
    GpuFacts,
    Job,
    JobAnswer,
    MeasuredSteps,
    RankInput,
    StepFlags,
    answer_on,
    training_ends,
)
from otel_zernel_libraries.training.cpu_takers import CpuTaker
from otel_zernel_libraries.training.device.streams import Integers
from otel_zernel_libraries.training.ledger import Position, Segment, StepEvent
from otel_zernel_libraries.training.names import TRAINED
from otel_zernel_libraries.training.quantiles import median
from otel_zernel_processors.phases.intake.inputs import InputPoint
from otel_zernel_processors.phases.results.code import CodeHistory
from otel_zernel_processors.phases.results.device import DeviceTimes
from otel_zernel_processors.phases.scopes.steps import Step
from otel_zernel_processors.phases.scopes.timeline import ClosedStep

_MOST: Final = 128
"""Points of a fact that are kept."""
_RISING, _RISE = 12, 64 << 20
"""Points of memory that rises, and its bytes, at least. A heap of glibc's malloc has so many (HEAP_MAX_SIZE)."""
_APART: Final = 2 * 10**9
"""Time (ns) between two points of memory: those that are kept show some minutes."""
_OF_WORKERS: Final = StepEvent("worker_batch")
_TAKERS: Final = 16
_FEWEST: Final = 4
"""Meetings of ranks."""
_CELLS: Final = 16_000
_FEWEST_EDGES: Final = 100
"""The latest meetings are enough: so many by the number of ranks, but not fewer than this."""
_BLOCK: Final = 5
_MOST_BLOCKS: Final = 40
"""Steps of a block, and blocks, of ranks whose meetings are not known."""
_FLAGS: Final[Mapping[str, int]] = {
    **dict.fromkeys(TRAINED, StepFlags.TRAINED),
    "training": StepFlags.TRAINED | StepFlags.UPDATED,
    "evaluation": StepFlags.EVALUATION,
}
"""By the kind of a step."""


class _Amounts:
    """The latest points of one fact."""

    def __init__(self) -> None:
        self._points: deque[tuple[int, int, float]] = deque(maxlen=_MOST)
        self._last: tuple[int, float] | None = None

    def add(self, point: InputPoint) -> None:
        """Adds a point of a gauge, or of a sum of either temporality."""
        start, amount = point.start, point.value
        if not point.delta:
            before, self._last = self._last, (point.time, point.value)
            if before is None:
                return
            start, amount = before[0], max(point.value - before[1], 0.0)
        self._points.append((start, point.time, amount))

    def add_level(self, point: InputPoint, apart: int = 0) -> None:
        """Adds a point of a gauge. `apart`: the time (ns) from one point to the next, at least."""
        if not self._points or point.time - self._points[-1][1] >= apart:
            self._points.append((point.time, point.time, point.value))

    @property
    def mean(self) -> float | None:
        """Of a gauge."""
        return sum(amount for *_, amount in self._points) / len(self._points) if self._points else None

    @property
    def latest(self) -> float | None:
        """Of a gauge."""
        return self._points[-1][2] if self._points else None

    @property
    def growth(self) -> float | None:
        """Of a gauge of memory, in a second; 0 if it does not rise much, and steadily: in each quarter of its points.
        None if it has too few."""
        times, _, amounts = np.array(self._points or [(0, 0, 0.0)], dtype=np.float64).T
        if len(times) < _RISING:
            return None
        rises = np.diff([median(quarter) for quarter in np.array_split(amounts, 4)])
        is_steady = rises.min() > max(rises.mean() / 2, 0.0) and amounts[-1] - amounts[0] > _RISE
        return float(np.polyfit((times - times[0]) / 1e9, amounts, 1)[0]) if is_steady else 0.0

    @property
    def total(self) -> float:
        """Of a sum."""
        return sum(amount for *_, amount in self._points)

    @property
    def rate(self) -> float | None:
        """Of a sum, in a second."""
        lasted = (self._points[-1][1] - self._points[0][0]) / 1e9 if self._points else 0.0
        return self.total / lasted if lasted > 0 else None


class MeasuredProcess:
    """Measures the steps of the first thread of a process that trains."""

    def __init__(
        self,
        window: int,
        device: DeviceTimes,
        drop: Callable[[int, str], None],
        *,
        has_code: bool = False,
        has_profiles: bool = False,
    ) -> None:
        """`window`: the time (ns) for which steps are kept. `device`: what its GPU did. `drop` counts stacks that are
        too many. `has_code`: whether stacks are sure to come."""
        self._device = device
        self.code = CodeHistory(window, drop, is_expected=has_code or has_profiles, keeps_newest=has_profiles)
        self.steps = MeasuredSteps(window)
        self._optimizer = ""
        self._has_loader = False
        self._uses_nccl = False
        self.gpu: GpuFacts | None = None
        """What slows down its GPU. None without readings of it."""
        self.ranks_here = 1
        """The ranks of its job on its machine."""
        self._amounts: defaultdict[str, _Amounts] = defaultdict(_Amounts)
        self._takers: defaultdict[CpuTaker, _Amounts] = defaultdict(_Amounts)

    def add(self, closed: ClosedStep, number: int, met: int) -> None:
        """Adds the next step. `number`: its number in its process. `met`: when (ns) its last wait for a collective
        ended; 0 without one."""
        step = closed.step
        flags = _FLAGS.get(step.kind, 0)
        flags |= StepFlags.LOSSY * step.lossy | StepFlags.ENDS_EPOCH * step.ends_epoch
        segments = closed.attribution.segments
        self.steps.add((step.start, step.end), segments, closed.events, flags, number, met)
        self.code.add_step(step, segments, Position.EVALUATION if flags & StepFlags.EVALUATION else None)
        self._uses_nccl = self._uses_nccl or any(collective.collective for collective in closed.collectives)
        if not self._optimizer or not self._has_loader:
            self._name(closed)

    def add_skipped(self, step: Step, segments: Sequence[Segment], number: int) -> None:
        """Adds steps without intervals, the first of them with its number: they say nothing about causes."""
        self.steps.add((step.start, step.end), (), {}, StepFlags.LOSSY, number)
        self.code.add_step(step, segments)

    def add_point(self, point: InputPoint) -> None:
        """Adds a fact."""
        if point.name == semconv.PROCESS_CPU_TAKEN_TIME:
            is_kept = point.taker in self._takers or len(self._takers) < _TAKERS
            self._takers[point.taker if is_kept else CpuTaker(point.taker.kind)].add(point)
        elif point.name in (semconv.DATALOADER_WORKER_CPU_TIME, semconv.DATALOADER_WORKER_IO_WAIT):
            self._amounts[point.name].add(point)
        elif point.name in (semconv.PROCESS_MEMORY_ANONYMOUS, semconv.DATALOADER_WORKER_MEMORY_ANONYMOUS):
            self._amounts[point.name].add_level(point, _APART)
        else:
            self._amounts[point.name].add_level(point)

    @property
    def gpu_utilization(self) -> float:
        """The part of the time, 0 to 1, in which it used its GPU, by the driver's readings; 0 if it is not known."""
        return self._amounts[semconv.GPU_PROCESS_UTILIZATION].mean or 0.0

    @property
    def facts(self) -> Facts:
        """What is known about the process."""
        amounts = self._amounts
        return Facts(
            optimizer=self._optimizer,
            has_loader=self._has_loader,
            uses_nccl=self._uses_nccl,
            workers=self._workers(),
            has_device=self._device.is_known,
            gpu=self.gpu,
            worker_cpu=amounts[semconv.DATALOADER_WORKER_CPU_TIME].rate,
            worker_io=amounts[semconv.DATALOADER_WORKER_IO_WAIT].rate,
            cpus=amounts[semconv.PROCESS_CPUS].mean,
            ranks_here=self.ranks_here,
            memory_growth=amounts[semconv.PROCESS_MEMORY_ANONYMOUS].growth,
            worker_growth=amounts[semconv.DATALOADER_WORKER_MEMORY_ANONYMOUS].growth,
            memory_left=amounts[semconv.PROCESS_MEMORY_LEFT].latest,
            runnable=amounts[semconv.PROCESS_THREADS_RUNNABLE].mean,
            takers={taker: taken.total for taker, taken in self._takers.items() if taken.total},
        )

    def _workers(self) -> int | None:
        """The number of workers, or 0 if the process makes its batches itself."""
        if mean := self._amounts[semconv.DATALOADER_WORKERS].mean:
            return max(round(mean), 1)
        counts = self.steps.counts()
        has_some = bool(counts[_OF_WORKERS].any()) if _OF_WORKERS in counts else False
        return None if has_some or not counts else 0

    @property
    def segments(self) -> int:
        """The segments of a thread on a GPU that an answer replays."""
        return len(self._device.solved[0])

    def input(self, rank: int | None) -> RankInput:
        """The process as a rank of its job; None if it trains alone."""
        return RankInput(rank, self.steps, self.facts, *self._device.solved, self._device.latest, self.code.times)

    def answer(self, expected: int, rank: int | None, since: int, before: JobAnswer | None) -> JobAnswer | None:
        """The answer on the process alone, of a job with so many ranks, after the one `before`. None before it has
        taken a few steps, and if the last one ended before `since` (ns)."""
        ends = training_ends(self.steps)
        if len(ends) < _FEWEST or ends[-1, 0] < since:
            return None
        return answer_on(Job([self.input(rank)], ends, expected), before)

    def _name(self, closed: ClosedStep) -> None:
        for interval in closed.step.intervals:
            if interval.kind == "optimizer":
                self._optimizer = interval.name.removeprefix("Optimizer.step#").partition(".")[0]
            self._has_loader |= interval.kind == "data_loading" and "DataLoader" in interval.name


def most_edges(ranks: int) -> int:
    """The number of meetings of so many ranks from which an answer follows, at most."""
    return max(_CELLS // ranks, _FEWEST_EDGES)


def answer_over_ranks(
    ranks: Mapping[int, MeasuredProcess],
    meetings: Iterable[Mapping[int, int]],
    expected: int,
    since: int,
    before: JobAnswer | None,
) -> JobAnswer | None:
    """The answer on ranks that meet, after the one `before`. `meetings`: of each step, when (ns) each rank left its
    last collective; 0 if it is not known. Such a rank was the last to come: it left with the others. None if too few
    steps are known, and if the last one was before `since` (ns)."""
    rows = []
    begin = max((int(rank.steps.steps[0, 0]) for rank in ranks.values() if len(rank.steps)), default=0)
    for step in meetings:
        met = [step.get(rank, 0) for rank in ranks]
        known = [time for time in met if time]
        if len(step) == len(ranks) and known and min(known) >= begin:
            rows.append([time or min(known) for time in met])
    rows.sort()
    kept = [row for at, row in enumerate(rows) if at == 0 or all(map(operator.gt, row, rows[at - 1]))]
    edges = np.array(kept, dtype=np.int64) if len(kept) >= _FEWEST else _blocks(ranks.values())
    if len(edges) < _FEWEST or edges[-1].max() < since:
        return None
    edges = edges[-most_edges(len(ranks)) :]
    if not any(rank.segments for rank in ranks.values()):
        edges = _first_to_leave(edges)
    return answer_on(Job([measured.input(rank) for rank, measured in ranks.items()], edges, expected), before)


def _first_to_leave(edges: Integers) -> Integers:
    """The same meetings, at the time when the first rank left. A collective is over then: the others left it later
    since they waited for a CPU, and came later to the next one, or not. Clocks of hosts differ: by the median."""
    clocks = median(edges - edges[:, :1]).astype(np.int64)
    first: Integers = (edges - clocks).min(axis=1, keepdims=True) + clocks
    return first


def _blocks(ranks: Iterable[MeasuredProcess]) -> Integers:
    """Edges of the same time on all ranks, a few steps apart: ranks step together, also if it is not known where they
    meet. Clocks of hosts differ by far less."""
    ends = [training_ends(rank.steps)[:, 0] for rank in ranks]
    begin, end = (
        max((end[0] for end in ends if len(end)), default=0),
        min((end[-1] if len(end) else 0 for end in ends), default=0),
    )
    count = min(min(map(len, ends), default=0) // _BLOCK, _MOST_BLOCKS)
    if count < _FEWEST or begin >= end:
        return np.empty((0, len(ends)), dtype=np.int64)
    return np.repeat(np.linspace(begin, end, count + 1).astype(np.int64)[:, None], len(ends), axis=1)
