"""The own time of a thread in a position, doing something: which of it one could save.

Operators of a pass or of the optimizer are the work itself. So are the first microseconds of Python, or of a wait for
another of their threads, around each of them.
"""

from collections.abc import Iterator
from typing import Final

import numpy as np

from otel_zernel_libraries.training.amounts import amount, percent
from otel_zernel_libraries.training.causes.cause import CauseName, Evidence
from otel_zernel_libraries.training.causes.facts import TORCH_OPTIMIZERS
from otel_zernel_libraries.training.causes.job import FOR_CPU, Job, WhatIf
from otel_zernel_libraries.training.ledger import Activity, Moment, Position
from otel_zernel_libraries.training.words import POSITION_WORDS, activity_words

PASSES: Final = frozenset(
    {
        *(Position.FORWARD, Position.BACKWARD, Position.CLIP, Position.OPTIMIZER, Position.ZERO_GRAD),
        *(Position.EVALUATION, Position.INFERENCE),
    }
)
_COUNTED: Final = frozenset({Position.FORWARD, Position.EVALUATION, Position.INFERENCE})
"""The passes whose operators are counted."""
_UPDATES: Final = frozenset({Position.OPTIMIZER, Position.ZERO_GRAD})
THE_WORK: Final = frozenset({Activity.OPERATOR, Activity.UNKNOWN})
"""In a pass, these activities are the work itself. Without snapshots, nothing more is known."""
_AROUND_OPERATORS: Final = frozenset({Activity.PYTHON, Activity.LOCK, Activity.NATIVE, Activity.FAULT})
OF_OTHER_CAUSES: Final = FOR_CPU | {Activity.GIL}
"""Activities that are causes of their own, wherever they are."""
OF_OTHER_POSITIONS: Final = frozenset({Position.EVALUATION, Position.CHECKPOINT, Position.COMPILE})
"""Positions that are causes of their own."""
_AN_OPERATOR: Final = 15e-6
"""Seconds of Python, and of waits for threads, that each operator needs."""
_SMALL: Final = 0.01
"""Less of a step is not worth a replay."""


def segments(job: Job) -> Iterator[WhatIf]:
    """A job without each activity in each position, on all ranks."""
    for at, moment in enumerate(job.moments):
        if not job.is_own[at] or moment.activity in OF_OTHER_CAUSES or moment.position in OF_OTHER_POSITIONS:
            continue
        part = _part(job, moment, at)
        # the rank that does it longest may be the one for which the others wait
        longest = max(job.a_step(job.spent[rank, :, at]) for rank in range(len(job.ranks))) * part
        if longest < _SMALL * job.step:
            continue
        removed = np.zeros((1, len(job.moments)))
        removed[0, at] = part
        yield WhatIf(
            cause=CauseName.SEGMENT,
            position=moment.position,
            activity=moment.activity,
            removed=dict.fromkeys(range(len(job.ranks)), removed),
        )


def seen_in_segment(job: Job, what_if: WhatIf) -> tuple[Evidence, ...]:
    """The evidence of the time that a what-if of a segment removes, on the rank that has most of it."""
    pair = (what_if.position, what_if.activity)
    at, moment = next((at, one) for at, one in enumerate(job.moments) if (one.position, one.activity) == pair)
    parts = {rank: np.broadcast_to(part, job.spent[rank].shape) for rank, part in what_if.removed.items()}
    means = {rank: job.a_step(job.spent[rank, :, at] * part[:, at]) for rank, part in parts.items()}
    longest = max(means, key=means.__getitem__)
    mean = means[longest]
    who = "The training thread" if job.alone else f"Rank {job.ranks[longest].rank}"
    sentence = (
        f"{who} {activity_words(moment.activity)} for {amount(mean)} of each {amount(job.step)} "
        f"({percent(mean / job.step)}) {POSITION_WORDS[moment.position].where}."
    )
    for_cpu = np.array([one.activity in FOR_CPU for one in job.moments])
    waits = job.a_step((job.spent[longest] * parts[longest] * for_cpu).sum(axis=1))
    of_waits = [Evidence(f"For this, it waits {amount(waits)} for a CPU.", waits, "s")]
    return Evidence(sentence, mean, "s"), *(of_waits if waits >= _SMALL * job.step else ())


def _part(job: Job, moment: Moment, at: int) -> float:
    """The part of the time that is not the work itself, 0 to 1."""
    position, activity = moment.position, moment.activity
    if position is Position.UNKNOWN:
        return 0.0
    if position not in PASSES:
        return 1.0
    if activity in THE_WORK:
        return 0.0
    if activity not in _AROUND_OPERATORS:
        return 1.0
    if position in _UPDATES:
        return 0.0 if all(one.facts.optimizer in TORCH_OPTIMIZERS for one in job.ranks) else 1.0
    if position is Position.BACKWARD:
        return float(activity is Activity.PYTHON)  # hooks
    if position not in _COUNTED:
        return 1.0
    spent = float(job.spent[:, :, at].sum())
    operators = sum(float(one[position].sum()) for one in job.operators if position in one)
    # a pass without operators has some that are not seen: it is compiled, or their probes are off
    return max(1.0 - operators * _AN_OPERATOR / spent, 0.0) if spent and operators else 0.0


def everywhere(job: Job) -> Iterator[WhatIf]:
    """A job without the activities that are causes wherever they are."""
    facts = [one.facts for one in job.ranks]
    crowded = any(one.runnable and one.cpus and one.runnable > one.cpus + 0.5 for one in facts)
    for activity, cause in (
        (Activity.CPU_WAIT, CauseName.THREADS if crowded else CauseName.CPU_TAKEN),
        (Activity.THROTTLED, CauseName.CPU_QUOTA),
        (Activity.GIL, CauseName.GIL),
        (Activity.COPY, CauseName.COPIES),
    ):
        columns = np.array([moment.activity is activity for moment in job.moments])
        mean = job.a_step(job.spent[:, :, columns].sum(axis=2).mean(axis=0))
        if mean < _SMALL * job.step:
            continue
        longest = max((at for at in np.flatnonzero(columns)), key=lambda at: float(job.spent[:, :, at].sum()))
        evidence = [
            Evidence(
                f"The training thread {activity_words(activity)} for {amount(mean)} of each {amount(job.step)} "
                f"({percent(mean / job.step)}).",
                mean,
                "s",
            )
        ]
        if activity is Activity.CPU_WAIT:
            evidence += _takers(job)
        yield WhatIf(
            cause=cause,
            position=job.moments[int(longest)].position,
            activity=activity,
            removed=dict.fromkeys(range(len(job.ranks)), columns[None, :].astype(np.float64)),
            evidence=tuple(evidence),
        )


def _takers(job: Job) -> Iterator[Evidence]:
    for one in job.ranks:
        who = "" if one.rank is None else f" of rank {one.rank}"
        if one.facts.runnable and one.facts.cpus and one.facts.runnable > one.facts.cpus + 0.5:
            text = f"{one.facts.runnable:.0f} threads{who} want to run on {one.facts.cpus:g} CPUs."
            yield Evidence(text, one.facts.runnable, "{thread}")
        total = sum(one.facts.takers.values())
        for name, seconds in sorted(one.facts.takers.items(), key=lambda pair: -pair[1])[:2]:
            yield Evidence(f"{name} had the CPU for {percent(seconds / total)} of them{who}.", seconds / total, "1")
