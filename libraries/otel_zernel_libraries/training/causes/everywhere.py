"""Activities that are causes wherever they are: waits for a CPU, for its quota, for Python's lock, and copies.

A wait for a CPU is the fault of the program that has it. That may be the job itself. The collector that measures the
job is none of its causes.
"""

from collections import Counter
from collections.abc import Iterator, Set
from typing import Final

import numpy as np

from otel_zernel_libraries.training.amounts import amount, percent
from otel_zernel_libraries.training.causes.cause import CauseName, Evidence
from otel_zernel_libraries.training.causes.facts import PASSES, Facts
from otel_zernel_libraries.training.causes.job import FOR_CPU, ON_CPU, Job, WhatIf
from otel_zernel_libraries.training.cpu_takers import OF_JOB, CpuTaker, TakerKind
from otel_zernel_libraries.training.device.streams import Floats
from otel_zernel_libraries.training.ledger import Activity
from otel_zernel_libraries.training.words import activity_for

_SMALL: Final = 0.01
"""Less of a step is not worth a replay."""
_OF_WAITS: Final = 0.05
"""Many threads that compute without Python also wait for its lock at times: less than this part of their waits for a
CPU."""
_WORTH_SAYING: Final = 0.1
"""The part of the waits from which on a taker is evidence."""
_OTHERS: Final = frozenset({TakerKind.OTHER})
_NOBODY: Final[frozenset[TakerKind]] = frozenset()
_UNNAMED: Final = frozenset({CpuTaker(TakerKind.OTHER)})
_OWN_TAKERS: Final = {
    TakerKind.SELF: "Its own threads",
    TakerKind.CHILD: "Processes that it has started ({})",
    TakerKind.RANK: "Other ranks of the job",
}


def everywhere(job: Job) -> Iterator[WhatIf]:
    """A job without each of these activities."""
    waits = _mean(job, _columns(job, Activity.CPU_WAIT))
    has_gil = _mean(job, _columns(job, Activity.GIL)) >= max(_SMALL * job.step, _OF_WAITS * waits)
    is_crowded = any(rank.facts.is_crowded for rank in job.ranks)
    holders = frozenset({TakerKind.SELF}) if has_gil and not is_crowded else _NOBODY
    if has_gil:
        # a thread that has taken the CPU has the lock, too; beside other takers, one may have it on another CPU
        taken = _parts(job, holders)
        held = _columns(job, Activity.CPU_WAIT) * (taken + (1.0 - taken) * _rivals(job) * _held(job))
        yield from _without(job, CauseName.GIL, Activity.GIL, _columns(job, Activity.GIL) + held)
    for cause, kinds in ((CauseName.THREADS, OF_JOB - holders), (CauseName.CPU_TAKEN, _OTHERS)):
        removed = _columns(job, Activity.CPU_WAIT)
        parts = np.broadcast_to(_parts(job, kinds, holders), removed.shape)
        if cause is CauseName.THREADS and is_crowded:
            # in its passes the thread waits for its other threads, which wait for a CPU
            locks = _columns(job, Activity.LOCK) * [moment.position in PASSES for moment in job.moments]
            removed, parts = removed + locks, np.maximum(parts, locks)
        yield from _without(job, cause, Activity.CPU_WAIT, removed, parts, kinds)
    yield from _without(job, CauseName.CPU_QUOTA, Activity.THROTTLED, _columns(job, Activity.THROTTLED))
    yield from _without(job, CauseName.COPIES, Activity.COPY, _columns(job, Activity.COPY))


def _columns(job: Job, activity: Activity) -> Floats:
    """By rank and moment, for all intervals: 1 if it has the activity."""
    has_activity = np.array([moment.activity is activity for moment in job.moments], dtype=np.float64)
    return np.tile(has_activity, (len(job.ranks), 1, 1))


def _parts(job: Job, kinds: Set[TakerKind], but: Set[TakerKind] = _NOBODY) -> Floats:
    """By rank: the part of its waits for a CPU in which takers of these kinds have it, without the waits for the kinds
    `but`. If no takers are known, the number of its threads decides."""
    return np.array([_part(rank.facts, kinds, but) for rank in job.ranks])[:, None, None]


def _part(facts: Facts, kinds: Set[TakerKind], but: Set[TakerKind] = _NOBODY) -> float:
    seconds = sum(time for taker, time in facts.takers.items() if taker.kind not in but)
    if not seconds:
        return float(facts.is_crowded == (kinds != _OTHERS))
    return sum(time for taker, time in facts.takers.items() if taker.kind in kinds) / seconds


def _rivals(job: Job) -> Floats:
    """By rank: how many of its other threads run, or wait for a CPU, on average: 0 to 1."""
    wants_to_run = np.array([moment.activity in ON_CPU | FOR_CPU for moment in job.moments])
    busy = job.spent[:, :, wants_to_run].sum(axis=(1, 2)) / job.seconds.sum()
    runnable = np.array([rank.facts.runnable or 0.0 for rank in job.ranks])
    rivals: Floats = np.clip(runnable - busy, 0.0, 1.0)[:, None, None]
    return rivals


def _held(job: Job) -> Floats:
    """By rank: the part of the time in which other threads have Python's lock, as the thread finds it when it runs."""
    gil, runs = (
        job.spent[:, :, [moment.activity in some for moment in job.moments]].sum(axis=(1, 2))
        for some in ({Activity.GIL}, ON_CPU)
    )
    held: Floats = gil / np.maximum(gil + runs, 1e-9)
    return held[:, None, None]


def _mean(job: Job, part: Floats) -> float:
    return job.a_step((job.spent * part).sum(axis=2).mean(axis=0))


def _without(
    job: Job,
    cause: CauseName,
    activity: Activity,
    removed: Floats,
    of_rest: Floats | None = None,
    takers: Set[TakerKind] = _NOBODY,
) -> Iterator[WhatIf]:
    """`of_rest`: the part of what more specific causes leave that this one explains."""
    if not removed.any():
        return
    parts = np.ones_like(removed) if of_rest is None else of_rest
    spent = job.spent * removed * parts
    mean = job.a_step(spent.sum(axis=2).mean(axis=0))
    if mean < _SMALL * job.step:
        return
    sentence = (
        f"The training thread {activity_for(activity, amount(mean))} of each {amount(job.step)} "
        f"({percent(mean / job.step)})."
    )
    yield WhatIf(
        cause=cause,
        position=job.moments[int(spent.sum(axis=(0, 1)).argmax())].position,
        activity=activity,
        removed=dict(enumerate(removed)),
        of_rest=dict(enumerate(parts)),
        evidence=(Evidence(sentence, mean, "s"), *_takers(job, takers)),
    )


def _takers(job: Job, kinds: Set[TakerKind]) -> Iterator[Evidence]:
    """The takers of these kinds that had the CPU for most of the time, over all ranks."""
    crowded = next((rank.facts for rank in job.ranks if rank.facts.is_crowded), None)
    if crowded and OF_JOB & kinds:
        text = f"{crowded.runnable:.0f} of its threads want to run on {crowded.cpus:g} CPUs."
        yield Evidence(text, crowded.runnable or 0.0, "{thread}")
    seconds: Counter[CpuTaker] = Counter()
    for rank in job.ranks:
        seconds.update(rank.facts.takers)
    named = [(taker, time) for taker, time in seconds.most_common() if taker.kind in kinds and taker not in _UNNAMED]
    for taker, time in named[:2]:
        share = time / max(seconds.total(), 1e-9)
        if share >= _WORTH_SAYING:
            name = _OWN_TAKERS.get(taker.kind, "{}").format(taker.name)
            yield Evidence(f"{name} had the CPU in {percent(share)} of all waits for one.", share, "1")
