"""Causes planted into simulated jobs: a job with each of them, the same job without it, and its name."""

import random
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Final

from otel_zernel_libraries.training.causes import CauseName, Facts
from otel_zernel_libraries.training.ledger import Activity, Position, StepEvent
from tests.libraries.training.causes.simulated import HEALTHY, Part, Plan

GATHERS: Final = StepEvent("collective", Position.AFTER_STEP, "all_gather", "small")
WORKER: Final = StepEvent("worker_batch")


@dataclass(frozen=True)
class Planted:
    """A cause in a job."""

    name: CauseName
    job: Plan
    without: Plan
    rank: int | None = None
    position: Position | None = None


def draw(rng: random.Random) -> Iterator[Planted]:
    """A job for each cause, with drawn times."""
    healthy = tuple(replace(part, seconds=part.seconds * rng.uniform(0.4, 2)) for part in HEALTHY)
    step = sum(part.seconds for part in healthy)

    def seconds(low: float = 0.1, high: float = 1.0) -> float:
        return step * rng.uniform(low, high)

    def planted(name: CauseName, plan: Plan, *parts: Part, rank: int | None = None) -> Planted:
        return Planted(name, replace(plan, parts=(*plan.parts, *parts)), plan, rank, parts[0].position)

    alone, pair = Plan(healthy), Plan(healthy, ranks=2, transfer=0.0002)
    four = replace(pair, ranks=4)
    for position in (Position.LOAD, Position.FORWARD, Position.CLIP, Position.AFTER_STEP, Position.ENVIRONMENT):
        activity = rng.choice([Activity.PYTHON, Activity.FILE, Activity.SOCKET, Activity.TIMER, Activity.NATIVE])
        if position is Position.FORWARD and activity is Activity.NATIVE:
            activity = Activity.TIMER
        yield planted(CauseName.SEGMENT, rng.choice([alone, pair, four]), Part(position, activity, seconds()))
    for plan in (pair, four):
        late = rng.randrange(plan.ranks)
        place = rng.choice([Position.LOAD, Position.FORWARD, Position.AFTER_STEP])
        activity = rng.choice([Activity.PYTHON, Activity.CPU_WAIT, Activity.FILE, Activity.THROTTLED])
        yield planted(CauseName.STRAGGLER, plan, Part(place, activity, seconds(), rank=late), rank=late)
        turns = [
            Part(at, Activity.OPERATOR, seconds(0.1, 0.3), turns=True) for at in (Position.FORWARD, Position.BACKWARD)
        ]
        # with equal batches all ranks have the mean
        mean = [replace(part, turns=False, seconds=part.seconds / plan.ranks) for part in turns]
        with_turns = replace(plan, parts=(*healthy, *turns))
        yield Planted(CauseName.IMBALANCE, with_turns, replace(plan, parts=(*healthy, *mean)))
        yield Planted(CauseName.SLOW_LINK, replace(plan, transfer=seconds()), replace(plan, transfer=0.0))
        gathers = replace(plan, events=Counter({GATHERS: 40}), meets_in=Position.AFTER_STEP)
        yield Planted(CauseName.SMALL_COLLECTIVES, replace(gathers, transfer=seconds()), replace(gathers, transfer=0.0))
        often = replace(plan, accumulate=rng.choice([4, 8]), transfer=seconds())
        yield Planted(CauseName.EXTRA_COLLECTIVES, often, replace(often, no_sync=True))
    every = rng.choice([7, 10, 20])
    rare = Part(
        Position.AFTER_STEP, rng.choice([Activity.PYTHON, Activity.FILE]), seconds(1, 4) * every / 5, every=every
    )
    yield planted(CauseName.PERIODIC, alone, rare)
    grows = Part(Position.AFTER_STEP, Activity.PYTHON, 0.0, growth=seconds() / 200)
    yield planted(CauseName.GROWTH, alone, grows)
    for position, name in ((Position.EVALUATION, CauseName.EVALUATION), (Position.CHECKPOINT, CauseName.CHECKPOINT)):
        yield planted(name, alone, Part(position, Activity.OPERATOR, seconds(1, 3) * 5, every=50))
    yield planted(CauseName.COMPILE, alone, Part(Position.COMPILE, Activity.PYTHON, seconds(2, 5), every=10))
    for activity, name in (
        (Activity.CPU_WAIT, CauseName.CPU_TAKEN),
        (Activity.THROTTLED, CauseName.CPU_QUOTA),
        (Activity.GIL, CauseName.GIL),
        (Activity.COPY, CauseName.COPIES),
    ):
        yield planted(name, rng.choice([alone, pair]), Part(Position.FORWARD, activity, seconds()))
    crowd = replace(alone, facts=Facts(cpus=2, runnable=16))
    yield planted(CauseName.THREADS, crowd, Part(Position.FORWARD, Activity.CPU_WAIT, seconds()))
    epochs = replace(alone, epoch=20)
    first = Part(Position.LOAD, Activity.PYTHON, seconds(3, 9), every=20)
    yield planted(CauseName.FIRST_OF_EPOCH, epochs, first)
    kept = replace(epochs, events=Counter({WORKER: 1}), facts=Facts(workers=2, cpus=8, has_loader=True))
    waits = replace(first, activity=Activity.LOCK)
    yield planted(CauseName.WORKERS_RESTART, replace(kept, starts_workers=True), waits)
    yield planted(CauseName.FIRST_OF_EPOCH, kept, waits)
    wait = Part(Position.LOAD, Activity.LOCK, seconds())
    for cpus, name in ((8, CauseName.WORKERS_TOO_FEW), (2, CauseName.WORKERS_SLOW)):
        facts = Facts(workers=2, cpus=cpus, worker_cpu=1.9, has_loader=True)
        fed = replace(alone, events=Counter({WORKER: 1}), facts=facts)
        yield planted(name, fed, wait)
