"""The answer on a job: its causes with their gains, the named ones first."""

from collections.abc import Sequence
from typing import Final

import numpy as np

from otel_zernel_libraries.training.causes.advice import Case, advice_on
from otel_zernel_libraries.training.causes.cause import Cause, Hidden, JobAnswer
from otel_zernel_libraries.training.causes.job import Job, WhatIf
from otel_zernel_libraries.training.causes.segments import segments
from otel_zernel_libraries.training.device.streams import Floats
from otel_zernel_libraries.training.ledger import phase_of

_FEWEST_STEPS: Final = 3
_WORTH: Final = 0.03
"""A cause is named if its gain is at least this share of a step."""
_MOST: Final = 16
_DRAWS: Final = 200
_BLOCKS: Final = 20
"""Neighbouring intervals are drawn together, because they are alike: there are about so many blocks."""
_BOUNDS: Final = (5, 95)
"""Percentiles: the truth is between them nine times in ten."""
_HIDDEN: Final = 0.25
"""Time is hidden if removing it saves less than this part of it."""


def answer_on(job: Job) -> JobAnswer | None:
    """The answer; None if there are too few steps."""
    if job.steps < _FEWEST_STEPS:
        return None
    what_ifs = list(segments(job))
    gains = job.without([WhatIf(cause=what_if.cause) for what_if in what_ifs[:1]]) - job.without(what_ifs)
    drawn = _drawn(job, gains)
    low, high = np.percentile(drawn, _BOUNDS, axis=0)
    causes = [
        _cause(job, what_if, job.a_step(gains[:, at]), float(low[at]), float(high[at]))
        for at, what_if in enumerate(what_ifs)
    ]
    named = [cause for cause in causes if cause.share >= _WORTH and cause.gain_low > 0]
    best = _best(job, what_ifs)
    return JobAnswer(
        step=job.step,
        steps=int(job.steps),
        ranks_seen=len(job.ranks),
        ranks_expected=job.expected,
        causes=tuple(sorted(named, key=lambda cause: -cause.gain)[:_MOST]),
        hidden=tuple(_hidden(job, causes)),
        best=best,
        looked_at=tuple(dict.fromkeys(what_if.cause for what_if in what_ifs)),
    )


def _drawn(job: Job, gains: Floats) -> Floats:
    """Gains a step of resampled steps: a row for each draw. Nothing is replayed again."""
    gains, trained = gains[~job.is_lossy], job.trained[~job.is_lossy]
    size = max(len(gains) // _BLOCKS, 1)
    block = np.arange(len(gains)) // size
    sums = np.stack([np.bincount(block, weights=column) for column in (*gains.T, trained)], axis=1)
    draws = np.random.default_rng(0).multinomial(len(sums), np.full(len(sums), 1 / len(sums)), size=_DRAWS)
    drawn = draws @ sums
    by_step: Floats = drawn[:, :-1] / np.maximum(drawn[:, -1:], 1.0)
    return by_step


def _cause(job: Job, what_if: WhatIf, gain: float, low: float, high: float) -> Cause:
    position, activity = what_if.position, what_if.activity
    rank = next((at for at, one in enumerate(job.ranks) if one.rank == what_if.rank), 0)
    return Cause(
        cause=what_if.cause,
        phase=phase_of(position, activity) if position and activity else "",
        position=position,
        activity=activity,
        rank=what_if.rank,
        gain=gain,
        gain_low=low,
        gain_high=high,
        share=gain / job.step,
        evidence=what_if.evidence,
        advice=advice_on(Case(what_if.cause, position, activity, job.ranks[rank].facts)),
    )


def _best(job: Job, what_ifs: Sequence[WhatIf]) -> float:
    """The seconds of a step without all causes."""
    removed: dict[int, Floats] = {}
    for what_if in what_ifs:
        for rank, part in what_if.removed.items():
            removed[rank] = np.maximum(removed.get(rank, 0.0), part)
    everything = WhatIf(cause=what_ifs[0].cause, removed=removed) if what_ifs else None
    return job.a_step(job.without([everything])[:, 0]) if everything else job.step


def _hidden(job: Job, causes: Sequence[Cause]) -> list[Hidden]:
    hidden = [
        Hidden(position=cause.position, activity=cause.activity, rank=cause.rank, time=cause.evidence[0].value)
        for cause in causes
        if cause.position and cause.activity and cause.evidence
        if cause.gain < _HIDDEN * cause.evidence[0].value >= _HIDDEN * _WORTH * job.step
    ]
    return sorted(hidden, key=lambda one: -one.time)[:_MOST]
