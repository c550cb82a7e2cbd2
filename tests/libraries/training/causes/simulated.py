"""Jobs of ranks without devices, simulated: their measured steps, with planted causes and without them."""

import random
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from otel_zernel_libraries.training import device
from otel_zernel_libraries.training.causes import (
    DeviceTime,
    Facts,
    Job,
    JobAnswer,
    MeasuredSteps,
    RankInput,
    StepFlags,
    answer_on,
    training_ends,
)
from otel_zernel_libraries.training.ledger import MOMENTS, Activity, Position, Segment, StepEvent
from otel_zernel_libraries.training.ledger.segments import NO_WORK
from tests.libraries.training.device.simulated import Loop

SECOND = 1_000_000_000
START = 1_700_000_000 * SECOND
WINDOW = 3_600 * SECOND


@dataclass(frozen=True)
class Part:
    """Something that a thread does in its steps."""

    position: Position
    activity: Activity
    seconds: float
    rank: int | None = None
    """None: all ranks."""
    every: int = 1
    """It happens in each so manyth step."""
    after: int = 0
    """It happens so many steps later."""
    growth: float = 0.0
    """Seconds more with each step."""
    since: int = 0
    """The first step in which it happens."""
    turns: bool = False
    """Whether it happens on one rank after the other."""
    kind: int = 0
    """A flag of `StepFlags` for a step of its own."""
    noise: float = 0.03
    """Its time differs from the mean by up to this share."""


@dataclass(frozen=True)
class Plan:
    """A training loop. Its ranks meet at the end of each backward pass."""

    parts: tuple[Part, ...]
    ranks: int = 1
    steps: int = 200
    transfer: float = 0.0
    """Seconds."""
    accumulate: int = 1
    """Steps before the last one do not update the weights."""
    no_sync: bool = False
    """Whether the ranks meet only in steps that update the weights. Else they meet in all."""
    meets_in: Position = Position.BACKWARD
    epoch: int = 0
    """Steps of an epoch; 0 for one epoch."""
    starts_workers: bool = False
    """Whether each epoch but the first starts two workers."""
    on_gpus: bool = False
    """Whether each rank launches one short kernel in its passes."""
    events: Counter[StepEvent] = field(default_factory=Counter)
    facts: Facts = field(default_factory=Facts)

    def without(self, *parts: Part) -> "Plan":
        return replace(self, parts=tuple(part for part in self.parts if part not in parts))


HEALTHY = (
    Part(Position.LOAD, Activity.PYTHON, 0.0004),
    Part(Position.FORWARD, Activity.OPERATOR, 0.010),
    Part(Position.BACKWARD, Activity.OPERATOR, 0.020),
    Part(Position.OPTIMIZER, Activity.OPERATOR, 0.005),
    Part(Position.AFTER_STEP, Activity.PYTHON, 0.0002),
)
_ORDER = list(Position)


def simulated(plan: Plan, seed: int = 0) -> Job:
    """The job of a plan."""
    rng = random.Random(seed)
    now = [START] * plan.ranks
    measured = [MeasuredSteps(WINDOW) for _ in range(plan.ranks)]
    launched: list[list[device.Segment]] = [[] for _ in range(plan.ranks)]
    meetings: list[list[int]] = []
    parts = sorted(plan.parts, key=lambda part: _ORDER.index(part.position))
    for number in range(1, plan.steps + 1):
        before = [_spent(parts, rank, number, plan, rng, of_backward=True) for rank in range(plan.ranks)]
        arrived = [now[rank] + sum(ns for *_, ns in before[rank]) for rank in range(plan.ranks)]
        meets = plan.ranks > 1 and (number % plan.accumulate == 0 or not plan.no_sync)
        left = max(arrived) + round(plan.transfer * SECOND)
        if meets:
            meetings.append([left] * plan.ranks)
        for rank in range(plan.ranks):
            after = _spent(parts, rank, number, plan, rng, of_backward=False)
            wait = [(plan.meets_in, Activity.COLLECTIVE, left - arrived[rank])] if meets else []
            segments, begin = _segments([*before[rank], *wait, *after], now[rank]), now[rank]
            now[rank] = segments[-1].end
            launched[rank] += map(_launching, segments) if plan.on_gpus else ()
            updates = number % plan.accumulate == 0
            flags = StepFlags.TRAINED | (StepFlags.UPDATED if updates else 0)
            flags |= StepFlags.ENDS_EPOCH if plan.epoch and number % plan.epoch == 0 else 0
            counts = Counter({StepEvent("backward"): 1, StepEvent("optimizer"): int(updates)}) + plan.events
            if plan.starts_workers and number % plan.epoch == 1 % plan.epoch:
                counts += Counter({StepEvent("iterator"): 1, StepEvent("worker_start"): 2})
            measured[rank].add((begin, now[rank]), segments, counts, flags, number, left if meets else 0)
    works = {(Position.FORWARD, device.Stream.COMPUTE): 1e-6}
    ranks = [
        RankInput(rank if plan.ranks > 1 else None, one, plan.facts, launched[rank], works)
        for rank, one in enumerate(measured)
    ]
    times = np.array(meetings) if plan.ranks > 1 else training_ends(measured[0])
    return Job(ranks, times, plan.ranks)


def _launching(part: Segment) -> device.Segment:
    """The same with a launch at the begin of a forward pass."""
    launches = (device.Launches(1, part.start, part.start),) if part.position is Position.FORWARD else ()
    return replace(device.Segment.of(part), launches=launches)


def step_of(plan: Plan, seed: int = 0) -> float:
    """The mean seconds of a step."""
    return simulated(plan, seed).step


def answer_to(*parts: Part, seed: int = 0, **plan: Any) -> JobAnswer:
    """The answer on a healthy job that also does this, with the other fields of its plan."""
    return answer_on(simulated(Plan((*HEALTHY, *parts), **plan), seed))


def _spent(
    parts: Sequence[Part], rank: int, number: int, plan: Plan, rng: random.Random, *, of_backward: bool
) -> list[tuple[Position, Activity, int]]:
    """What a rank does in a step up to the meeting, or after it."""
    spent = []
    for part in parts:
        noise = 1 + rng.uniform(-part.noise, part.noise)
        is_due = number % part.every == part.after % part.every and part.rank in (None, rank) and number >= part.since
        if part.turns:
            is_due = number % plan.ranks == rank
        is_before = _ORDER.index(part.position) <= _ORDER.index(Position.BACKWARD)
        if is_due and is_before == of_backward:
            seconds = (part.seconds + part.growth * number) * noise
            spent.append((part.position, part.activity, round(seconds * SECOND)))
    return spent


def _segments(spent: Sequence[tuple[Position, Activity, int]], begin: int) -> list[Segment]:
    segments = []
    for position, activity, ns in spent:
        work = NO_WORK._replace(operators=int(activity is Activity.OPERATOR))
        segments.append(Segment(begin, begin + ns, MOMENTS[position][activity], (), work))
        begin += ns
    return segments


def job_on_device(loop: Loop, use: device.DeviceUse, facts: Facts | None = None) -> Job:
    """The job of a loop on a simulated device. Each phase launches in operators."""
    measured, size = MeasuredSteps(WINDOW), len(loop.phases)
    for at in range(0, len(use.segments), size):
        parts = use.segments[at : at + size]
        segments = [
            Segment(
                part.begin,
                part.end,
                MOMENTS[part.position][Activity.UNKNOWN],
                tuple((MOMENTS[part.position][activity], time) for activity, time in part.activities.items()),
            )
            for part in parts
        ]
        measured.add((parts[0].begin, parts[-1].end), segments, {}, StepFlags.TRAINED, at // size + 1)
    known = DeviceTime(busy=0.7, starved={Position.LOAD: 0.2}, undetermined=0.1)
    rank = RankInput(None, measured, facts or Facts(optimizer="AdamW"), use.segments, use.works, known)
    return Job([rank], training_ends(measured))


def with_operators(part: device.Segment) -> device.Segment:
    """Launches are made in operators."""
    times = dict[Activity, int]()
    for activity, time in part.activities.items():
        times[Activity.OPERATOR if activity is Activity.PYTHON and part.launches else activity] = time
    return replace(part, activities=times)
