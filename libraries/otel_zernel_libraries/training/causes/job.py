"""The measured steps of all ranks of a job, and what a cause leaves out of them.

The ranks leave the last collective of a step together, so a job's time divides into intervals from one such meeting to
the next. For a rank that trains alone, an interval ends with each training step.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Final

import numpy as np

from otel_zernel_libraries.training.causes.cause import CauseName, DeviceTime, Evidence
from otel_zernel_libraries.training.causes.facts import Facts
from otel_zernel_libraries.training.causes.measured import MeasuredSteps, StepFlags
from otel_zernel_libraries.training.code_times import CodeTimes
from otel_zernel_libraries.training.device import Segment
from otel_zernel_libraries.training.device.segments import Kind
from otel_zernel_libraries.training.device.streams import NS, Flags, Floats, Integers
from otel_zernel_libraries.training.ledger import MOMENTS, Activity, Moment, Position, StepEvent

WAITS: Final = frozenset({Activity.COLLECTIVE, Activity.GPU_WAIT, Activity.LAUNCH_BLOCKED})
"""Time in which the thread waits for work of a device, or for its peers: not its own."""
ON_CPU: Final = frozenset({Activity.OPERATOR, Activity.PYTHON, Activity.NATIVE, Activity.PROBE})
FOR_CPU: Final = frozenset({Activity.CPU_WAIT, Activity.THROTTLED})
"""A thread that computes less also waits less for a CPU."""
_NEGLIGIBLE: Final = 0.01
_OF_ONE_RANK: Final = 0.8
"""A rank with this part of some time is the reason of it."""
_UNKNOWN: Final = MOMENTS[Position.UNKNOWN][Activity.UNKNOWN]


@dataclass(frozen=True)
class RankInput:
    """One rank of a job, or a process that trains alone."""

    rank: int | None
    measured: MeasuredSteps
    facts: Facts
    segments: Sequence[Segment] = ()
    """The segments of its thread whose launches are known; empty without a GPU."""
    works: Mapping[Kind, float] = field(default_factory=dict)
    """Seconds of work on the GPU for a launch of each kind."""
    device: DeviceTime | None = None
    """What the GPU did in the latest time, as parts of that time."""
    code: CodeTimes = field(default_factory=CodeTimes)


@dataclass(frozen=True, kw_only=True)
class WhatIf:
    """A job without something."""

    cause: CauseName
    position: Position | None = None
    activity: Activity | None = None
    rank: int | None = None
    removed: Mapping[int, Floats] = field(default_factory=dict)
    """By the index of a rank: the part of its time that is gone, 0 to 1, by interval and moment, or for all of either
    (one row, one column)."""
    of_rest: Mapping[int, Floats] = field(default_factory=dict)
    """By the index of a rank: the part that is gone of what more specific causes leave. Without an entry: all of it."""
    faster: Floats | None = None
    """By interval: the part of the transfers that is gone."""
    apart: Flags | None = None
    """By interval: whether the ranks do not wait for each other."""
    paces: Mapping[int, float] = field(default_factory=dict)
    """By the index of a rank: the part of its GPU's work that is left. Without an entry: all of it."""
    is_bound: bool = False
    """Whether the gain is only known to be at most so much."""
    more: float = 0.0
    """Seconds of a step that may go with it, at most: nobody knows how many do."""
    evidence: tuple[Evidence, ...] = ()


class Job:
    """The intervals of a job."""

    def __init__(self, ranks: Sequence[RankInput], times: Integers, expected: int = 1) -> None:
        """`times`: the edges of the intervals by edge and rank, ns since 1970. `expected`: the number of all ranks."""
        self.ranks = ranks
        self.times = times
        self.expected = expected
        grids = [rank.measured.grid(times[:, at]) for at, rank in enumerate(ranks)]
        self.moments: tuple[Moment, ...] = tuple(
            sorted({moment for grid in grids for moment in grid.moments} | {_UNKNOWN}, key=_order)
        )
        self.seconds: Floats = np.diff(times, axis=0).mean(axis=1) * NS
        """Of each interval."""
        self.spent: Floats = np.zeros((len(ranks), len(self.seconds), len(self.moments)))
        """Seconds by rank, interval and moment."""
        for at, grid in enumerate(grids):
            self.spent[at][:, [self.moments.index(moment) for moment in grid.moments]] = grid.spent
        rest = np.maximum(np.diff(times, axis=0).T * NS - self.spent.sum(axis=2), 0.0)
        self.spent[:, :, self.moments.index(_UNKNOWN)] += rest
        self.operators = [grid.operators for grid in grids]
        """Of each rank: the number of operators by position and interval."""
        self.is_own: Flags = np.array([moment.activity not in WAITS for moment in self.moments])
        self.trained = self.counted(0, StepFlags.TRAINED)
        """The training steps that end in each interval."""
        self.is_lossy: Flags = np.zeros(len(self.seconds), dtype=np.bool_)
        """Whether an interval says nothing about gains: events were lost in it, or its launches are not known."""
        for at, rank in enumerate(ranks):
            self.is_lossy |= self.counted(at, StepFlags.LOSSY) > 0
            if self.has_device:
                self.is_lossy |= ~_covered(rank.segments, times[:, at])

    @property
    def has_device(self) -> bool:
        """Whether the launches of each rank to its GPU are known."""
        return all(rank.segments for rank in self.ranks)

    @property
    def misses_device(self) -> bool:
        """Whether a thread waits for a GPU whose work is not known: then nothing is known about gains."""
        if self.has_device:
            return False
        waits = [moment.activity in (Activity.GPU_WAIT, Activity.LAUNCH_BLOCKED) for moment in self.moments]
        has_waited = float(self.spent[:, :, waits].sum()) > _NEGLIGIBLE * float(self.seconds.sum())
        # waits of a process with a GPU may be called waits for its peers
        return has_waited or any(rank.facts.has_device for rank in self.ranks)

    @property
    def alone(self) -> bool:
        """Whether the job has one rank."""
        return len(self.ranks) == 1

    @property
    def is_whole(self) -> bool:
        """Whether all ranks are seen."""
        return len(self.ranks) >= self.expected

    @cached_property
    def steps(self) -> float:
        """The training steps in intervals without lost events."""
        return float(self.trained[~self.is_lossy].sum())

    @cached_property
    def means(self) -> Floats:
        """The mean seconds of an interval without lost events, by rank and moment."""
        means: Floats = self.spent[:, ~self.is_lossy].mean(axis=1)
        return means

    @cached_property
    def totals(self) -> Floats:
        """The seconds of all intervals, by rank and moment."""
        totals: Floats = self.spent.sum(axis=1)
        return totals

    @cached_property
    def own(self) -> Floats:
        """The own time (s) of each rank in each interval."""
        own: Floats = self.spent[:, :, self.is_own].sum(axis=2)
        return own

    @cached_property
    def transfers(self) -> Floats:
        """The seconds of each interval in which no rank works: the transfer of its collectives, by the wait of the last
        rank to arrive."""
        waits: Floats = self.spent[:, :, ~self.is_own].sum(axis=2).min(axis=0)
        return waits

    def one_of_ranks(self, seconds: Floats) -> int | None:
        """The rank that has most of some time (s, by rank). None if several have it, or if the job has one rank."""
        first = int(seconds.argmax())
        return None if self.alone or seconds[first] < _OF_ONE_RANK * seconds.sum() else self.ranks[first].rank

    def index(self, moment: Moment) -> int:
        """The column of a moment."""
        return self.moments.index(moment)

    def a_step(self, intervals: Floats) -> float:
        """The sum over the intervals, by training step."""
        return float(intervals[~self.is_lossy].sum() / max(self.steps, 1.0))

    @cached_property
    def step(self) -> float:
        """The mean seconds of a step."""
        return self.a_step(self.seconds)

    def events(self, rank: int, event: StepEvent) -> Integers:
        """How often an event has happened in each interval."""
        return self.all_events(rank).get(event, np.zeros(len(self.seconds), dtype=np.int64))

    def all_events(self, rank: int) -> dict[StepEvent, Integers]:
        """How often each event has happened in each interval."""
        return {event: self._summed(rank, counts) for event, counts in self.ranks[rank].measured.counts().items()}

    def counted(self, rank: int, flag: int) -> Integers:
        """The steps of a rank with a flag that end in each interval."""
        return self._summed(rank, (self.ranks[rank].measured.steps[:, 3] & flag) // flag)

    def _summed(self, rank: int, values: Integers) -> Integers:
        """The sum of a value of each step over the steps that end in each interval."""
        at, inside = self._interval_of_steps[rank]
        return np.bincount(at, weights=values[inside], minlength=len(self.seconds)).astype(np.int64)

    @cached_property
    def _interval_of_steps(self) -> list[tuple[Integers, Flags]]:
        """Of each rank: the interval in which each of its steps ends, and which of its steps end in one."""
        intervals = []
        for rank, rank_ in enumerate(self.ranks):
            at = np.searchsorted(self.times[:, rank], rank_.measured.steps[:, 1], side="left") - 1
            inside = (at >= 0) & (at < len(self.seconds))
            intervals.append((at[inside], inside))
        return intervals


def training_ends(measured: MeasuredSteps) -> Integers:
    """The edges of the intervals of a rank that trains alone: the ends of its training steps."""
    steps = measured.steps
    ends: Integers = np.sort(steps[(steps[:, 3] & StepFlags.TRAINED) > 0, 1])
    return ends[np.diff(ends, prepend=ends[:1] - 1) > 0][:, None]  # np.unique imports numpy.ma, which takes 1.4 MB


def _covered(segments: Sequence[Segment], edges: Integers) -> Flags:
    """Whether the segments cover each interval."""
    covered: Flags = (edges[:-1] >= segments[0].begin) & (edges[1:] <= segments[-1].end)
    return covered


def _order(moment: Moment) -> tuple[str, str]:
    return moment.position, moment.activity
