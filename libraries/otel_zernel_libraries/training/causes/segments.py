"""The own time of a thread in a position, doing something: which of it one could save.

Operators of a pass or of the optimizer are the work itself. So are the first microseconds of Python, or of a wait for
another of their threads, around each of them.
"""

from collections.abc import Iterator
from typing import Final

import numpy as np

from otel_zernel_libraries.training.amounts import amount, percent
from otel_zernel_libraries.training.causes.cause import CauseName, Evidence
from otel_zernel_libraries.training.causes.job import Job, WhatIf
from otel_zernel_libraries.training.ledger import Activity, Moment, Position
from otel_zernel_libraries.training.words import POSITION_WORDS, activity_words

_PASSES: Final = frozenset(
    {
        *(Position.FORWARD, Position.LOSS, Position.BACKWARD, Position.CLIP, Position.OPTIMIZER, Position.ZERO_GRAD),
        *(Position.EVALUATION, Position.INFERENCE),
    }
)
_AROUND_OPERATORS: Final = frozenset({Activity.PYTHON, Activity.LOCK, Activity.NATIVE, Activity.FAULT})
_AN_OPERATOR: Final = 50e-6
"""Seconds of Python, and of waits for threads, that each operator needs."""
_SMALL: Final = 0.01
"""Less of a step is not worth a replay."""


def segments(job: Job) -> Iterator[WhatIf]:
    """A job without each activity in each position, on all ranks."""
    for at, moment in enumerate(job.moments):
        spent = job.spent[:, :, at]
        mean = job.a_step(spent.mean(axis=0))
        part = _part(job, moment, at)
        if not job.is_own[at] or mean * part < _SMALL * job.step:
            continue
        removed = np.zeros((1, len(job.moments)))
        removed[0, at] = part
        sentence = (
            f"The training thread {activity_words(moment.activity)} for {amount(mean)} of each {amount(job.step)} "
            f"({percent(mean / job.step)}) {POSITION_WORDS[moment.position].where}."
        )
        yield WhatIf(
            cause=CauseName.SEGMENT,
            position=moment.position,
            activity=moment.activity,
            removed=dict.fromkeys(range(len(job.ranks)), removed),
            evidence=(Evidence(sentence, mean, "s"),),
        )


def _part(job: Job, moment: Moment, at: int) -> float:
    """The part of the time that is not the work itself, 0 to 1."""
    if moment.position not in _PASSES:
        return 1.0
    if moment.activity in (Activity.OPERATOR, Activity.UNKNOWN):
        return 0.0
    if moment.activity not in _AROUND_OPERATORS:
        return 1.0
    if moment.position is Position.BACKWARD:
        return 0.0  # its operators are not counted
    spent = float(job.spent[:, :, at].sum())
    operators = sum(float(one[moment.position].sum()) for one in job.operators if moment.position in one)
    return max(1.0 - operators * _AN_OPERATOR / spent, 0.0) if spent else 0.0
