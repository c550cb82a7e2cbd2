"""What ranks lose to each other: a late rank, uneven steps, transfers, and collectives that are too many."""

from collections.abc import Iterator
from typing import Final

import numpy as np

from otel_zernel_libraries.training.amounts import amount, percent
from otel_zernel_libraries.training.causes.cause import CauseName, Evidence
from otel_zernel_libraries.training.causes.job import FOR_CPU, ON_CPU, Job, WhatIf
from otel_zernel_libraries.training.causes.measured import StepFlags
from otel_zernel_libraries.training.causes.segments import OF_OTHER_CAUSES, OF_OTHER_POSITIONS
from otel_zernel_libraries.training.device.streams import Flags, Floats
from otel_zernel_libraries.training.ledger import Activity, Position, StepEvent
from otel_zernel_libraries.training.quantiles import median
from otel_zernel_libraries.training.words import POSITION_WORDS, activity_for

_SURE: Final = 3.0
"""Standard errors by which a rank's time must differ from the median rank's."""
_SMALL: Final = 0.01
_ALIKE: Final = 0.4
"""If a larger batch makes a step late, all its passes are late together: their correlation."""
_UNEVEN: Final = 0.1
"""The lateness in turns, by the step, that no noise of a machine explains."""
_FEW: Final = 10
_SEVERAL: Final = 3
"""Small collectives of a step, outside its backward pass, that could be one."""
_SHORT: Final = 0.0005
"""Seconds that a small collective takes, at most, if its size is not known."""


def over_ranks(job: Job) -> Iterator[WhatIf]:
    """What-ifs that need all ranks."""
    if job.alone or not job.is_whole:
        return
    yield from _stragglers(job)
    yield from _imbalance(job)
    yield from _transfers(job)
    yield from _extra(job)


def _is_of_ranks(job: Job) -> Flags:
    """The moments in which ranks may differ for no other cause."""
    is_of_ranks: Flags = (
        np.array(
            [
                moment.position not in OF_OTHER_POSITIONS and moment.activity is not Activity.PROBE
                for moment in job.moments
            ]
        )
        & job.is_own
    )
    return is_of_ranks


def _excess(job: Job, rank: int, others: Floats | None) -> Floats:
    """By moment: the seconds of an interval by which a rank is slower than others; None: than the other one of two."""
    means = job.means
    excess: Floats = (means[rank] - (means[1 - rank] if others is None else others)) * _is_of_ranks(job)
    return excess


def _stragglers(job: Job) -> Iterator[WhatIf]:
    """All late ranks are as fast as the median rank. One of several alone would save little."""
    own = job.spent[:, ~job.is_lossy][:, :, _is_of_ranks(job)].sum(axis=2)
    if own.shape[1] < _FEW:
        return
    # two ranks that are late in turns are no stragglers: each is compared with the other one
    usual = np.tile(median(own), (len(own), 1)) if len(own) > 2 else own[::-1]
    late = _late(job, own - usual)
    if not late:
        return
    others = median(job.means) if len(own) > 2 else None
    latest = max(late, key=late.__getitem__)
    by_moment = _excess(job, latest, others)
    moment = job.moments[int(by_moment.argmax())]
    steps = own.shape[1] / job.steps
    longest, lateness = float(by_moment.max()) * steps, late[latest] * steps
    number, where = job.ranks[latest].rank, POSITION_WORDS[moment.position].where
    evidence = [
        Evidence(
            f"Rank {number} needs {amount(lateness)} more for each step than the others "
            f"({amount(float(usual[latest].mean()) * steps)}).",
            lateness,
            "s",
        ),
        Evidence(f"It {activity_for(moment.activity, amount(longest))} more {where}.", longest, "s"),
    ]
    if len(late) > 1:
        names = ", ".join(str(job.ranks[rank].rank) for rank in late if rank != latest)
        evidence.append(Evidence(f"Late, too: {names}.", len(late) - 1, "{rank}"))
    yield WhatIf(
        cause=CauseName.STRAGGLER,
        position=moment.position,
        activity=moment.activity,
        rank=number,
        removed={rank: _lateness(job, rank, seconds, others) for rank, seconds in late.items()},
        evidence=tuple(evidence),
    )


def _late(job: Job, excess: Floats) -> dict[int, float]:
    """The late ranks, by their index, and the mean seconds of an interval by which each is late. `excess`: the seconds
    by rank and interval."""
    means, errors = excess.mean(axis=1), excess.std(axis=1) / excess.shape[1] ** 0.5
    fewest = np.maximum(_SMALL * float(job.seconds.mean()), _SURE * errors)
    return {int(rank): float(means[rank]) for rank in np.flatnonzero(means >= fewest)}


def _lateness(job: Job, rank: int, seconds: float, others: Floats | None) -> Floats:
    """The part of the time of a rank, by moment, that makes it late by so many seconds."""
    spent, positive = job.means[rank], np.maximum(_excess(job, rank, others), 0.0)
    # it may be faster in other moments: its largest differences make it late
    largest = np.argsort(-positive)
    before = np.cumsum(positive[largest]) - positive[largest]
    positive[largest] = np.clip(seconds - before, 0.0, positive[largest])
    part = np.divide(positive, spent, out=np.zeros_like(positive), where=spent > 0)
    clipped: Floats = np.clip(part, 0.0, 1.0)[None, :]
    return clipped


def _imbalance(job: Job) -> Iterator[WhatIf]:
    """All ranks need the mean of each step. What one rank always needs more is another cause."""
    columns = _is_of_ranks(job) & np.array([moment.activity not in OF_OTHER_CAUSES for moment in job.moments])
    own = job.spent[:, :, columns].sum(axis=2)
    own = own - (own.mean(axis=1) - own.mean())[:, None]
    late = own - own.mean(axis=0)
    if own.shape[1] < _FEW or late.max(axis=0).mean() < _SMALL * job.seconds.mean():
        return
    passes = [
        job.spent[:, :, columns & np.array([moment.position is position for moment in job.moments])].sum(axis=2)
        for position in (Position.FORWARD, Position.BACKWARD)
    ]
    pairs = [(part - part.mean(axis=1)[:, None] - (part.mean(axis=0) - part.mean())).ravel() for part in passes]
    spreads = [float(pair.std()) for pair in pairs]
    alike = float(np.mean(pairs[0] * pairs[1]) / (spreads[0] * spreads[1])) if min(spreads) > 0 else 0.0
    uneven = float(late.max(axis=0).mean())
    if alike < _ALIKE and uneven < _UNEVEN * job.seconds.mean():
        return
    part = np.divide(np.maximum(late, 0.0), own, out=np.zeros_like(own), where=own > 0)
    step = uneven * len(job.seconds) / job.steps
    yield WhatIf(
        cause=CauseName.IMBALANCE,
        removed={rank: part[rank][:, None] * columns for rank in range(len(job.ranks))},
        evidence=(
            Evidence(
                f"The ranks are late in turns: the last one of each step needs {amount(step)} more than their mean.",
                step,
                "s",
            ),
        ),
    )


def _transfers(job: Job) -> Iterator[WhatIf]:
    """Transfers take no time: those of small collectives outside the backward pass, and all others."""
    if job.a_step(job.transfers) < _SMALL * job.step:
        return
    outside = _outside_backward(job)
    rest = np.ones_like(job.transfers)
    if small := _small_collectives(job, outside):
        yield small
        rest -= outside
    waits = job.a_step(job.transfers * rest)
    share = percent(waits / job.step)
    yield WhatIf(
        cause=CauseName.SLOW_LINK,
        position=_longest_wait(job),
        activity=Activity.COLLECTIVE,
        faster=rest * _without_cpu_waits(job),
        evidence=(
            Evidence(
                f"Even the rank that comes last waits for {amount(waits)} of each {amount(job.step)} ({share}).",
                waits,
                "s",
            ),
        ),
    )


def _outside_backward(job: Job) -> Floats:
    """By interval: the part of the transfers that is outside the backward pass."""
    outside = np.array(
        [moment.activity is Activity.COLLECTIVE and moment.position is not Position.BACKWARD for moment in job.moments]
    )
    waits = np.minimum(job.spent[:, :, outside].sum(axis=2).min(axis=0), job.transfers)
    part: Floats = np.divide(waits, job.transfers, out=np.zeros_like(waits), where=job.transfers > 0)
    return part


def _small_collectives(job: Job, outside: Floats) -> WhatIf | None:
    """The small collectives of a step take no time; None if they are few. `outside`: the part of the transfers, by
    interval, that is outside the backward pass."""
    lasts = job.a_step(job.transfers * outside)
    others = [
        (event, counts.sum() / max(job.trained.sum(), 1))
        for event, counts in job.all_events(0).items()
        if event.name == "collective" and event.position != Position.BACKWARD
    ]
    are_short = lasts < _SHORT * sum(number for _, number in others)
    small = [(event, number) for event, number in others if event.size == "small" or (not event.size and are_short)]
    count = sum(number for _, number in small)
    if count < _SEVERAL:
        return None
    event, _ = max(small, key=lambda pair: pair[1])
    kind = f"{event.operation} " if event.operation else ""
    return WhatIf(
        cause=CauseName.SMALL_COLLECTIVES,
        position=Position(event.position) if event.position else None,
        activity=Activity.COLLECTIVE,
        faster=outside * _without_cpu_waits(job),
        evidence=(
            Evidence(
                f"Each step has {count:.0f} small collectives {kind}outside its backward pass.", count, "{collective}"
            ),
            Evidence(f"Even the rank that comes last waits {amount(lasts)} for them.", lasts, "s"),
        ),
    )


def _without_cpu_waits(job: Job) -> float:
    """The part of the transfers that is their own, 0 to 1. Without NCCL, threads on the CPU make them, which wait for a
    CPU as long as the training threads do."""
    if any(rank.facts.uses_nccl for rank in job.ranks):
        return 1.0
    runs, waits = (
        float(job.spent[:, :, [moment.activity in some for moment in job.moments]].sum()) for some in (ON_CPU, FOR_CPU)
    )
    return runs / (runs + waits) if runs else 1.0


def _longest_wait(job: Job) -> Position | None:
    """The position in which ranks wait longest."""
    waits = [at for at, moment in enumerate(job.moments) if moment.activity is Activity.COLLECTIVE]
    return (
        job.moments[max(waits, key=lambda at: float(job.spent[:, :, at].min(axis=0).sum()))].position if waits else None
    )


def _extra(job: Job) -> Iterator[WhatIf]:
    """The ranks meet only in steps that update the weights."""
    backwards = int(job.events(0, StepEvent("backward")).sum())
    updates = int(job.events(0, StepEvent("optimizer")).sum())
    if not updates or backwards < 1.5 * updates:
        return
    steps = job.ranks[0].measured.steps
    updated = set(steps[(steps[:, 3] & StepFlags.UPDATED) > 0, 4].tolist())
    apart = np.array([edge not in updated for edge in job.times[1:, 0].tolist()])
    if not apart.any() or apart.mean() < 0.3:
        return
    yield WhatIf(
        cause=CauseName.EXTRA_COLLECTIVES,
        position=Position.BACKWARD,
        activity=Activity.COLLECTIVE,
        faster=apart.astype(np.float64),
        apart=apart,
        evidence=(
            Evidence(
                f"The ranks exchange gradients in {backwards / updates:.1f} backward passes for each optimizer step.",
                backwards / updates,
                "{pass}",
            ),
        ),
    )
