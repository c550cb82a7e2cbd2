"""Steps that differ: some are slow, every few or the first of an epoch, all grow, or other work lies between them."""

from collections.abc import Iterator, Sequence
from typing import Final

import numpy as np

from otel_zernel_libraries.training.amounts import amount, percent
from otel_zernel_libraries.training.causes.cause import CauseName, Evidence
from otel_zernel_libraries.training.causes.facts import PASSES
from otel_zernel_libraries.training.causes.job import ON_CPU, Job, WhatIf
from otel_zernel_libraries.training.causes.measured import StepFlags
from otel_zernel_libraries.training.causes.segments import OF_OTHER_CAUSES, OF_OTHER_POSITIONS, THE_WORK
from otel_zernel_libraries.training.device.streams import Flags, Floats, Integers
from otel_zernel_libraries.training.ledger import Activity, Moment, Position, StepEvent
from otel_zernel_libraries.training.quantiles import median
from otel_zernel_libraries.training.words import POSITION_WORDS, activity_clause

_SLOW: Final = 1.5
"""A step is slow from so many medians on."""
_MOST_SLOW: Final = 0.3
"""If more of the steps are slow, they are no exception."""
_OF_MOMENT: Final = 0.67
"""Irregular slow steps with longer waits are a cause of their own if most of the time of these waits is in them."""
_FEW: Final = 10
_REGULAR: Final = 0.7
"""The part of the time in slow steps that is in those at equal distances, if they are periodic."""
_COMPLETE: Final = 0.9
"""The part of the steps at equal distances that are slow then."""
_ROUNDING: Final = 1 - 1e-9
_PHASES: Final = 8
_BLOCKS: Final = 12
_RISING: Final = 0.8
"""The rank correlation of growing steps with their number."""
_FEWEST_BLOCKS: Final = 10
"""In six blocks, one noise in twenty rises as well."""
_RISE: Final = 0.05
"""The growth over all steps, by the mean step."""
_OWN_RISE, _BEYOND = 0.15, 4.0
"""A place that grows takes longer by this part at the end, and by so many times the part that the rest of the step has
more. A machine that slows down does not make one place so much slower than the others."""
_JUMP: Final = 0.5
"""A larger part of a rise within two blocks is no growth: something has begun."""
_NEARLY: Final = 0.05
"""A place that begins with nothing: this part of its mean, at least, is its beginning."""
_MORE: Final = 1.05
_SMALL: Final = 0.01
_RESTARTS: Final = 0.5
"""Workers that start in more than this part of the epochs are not kept from one to the next."""
_NOT_ALL: Final = 1.5
"""Steps from one stop to the next, if not each step has one."""
_STOPS: Final = (
    (Position.EVALUATION, CauseName.EVALUATION, "Evaluations"),
    (Position.CHECKPOINT, CauseName.CHECKPOINT, "Checkpoints"),
    (Position.COMPILE, CauseName.COMPILE, "Compilations"),
)


def stops(job: Job) -> Iterator[WhatIf]:
    """A job without its evaluations, its checkpoints, and without compiling."""
    for position, cause, name in _STOPS:
        columns = np.array([moment.position is position for moment in job.moments]) & job.is_own
        spent = job.spent[:, :, columns].sum(axis=2).max(axis=0)
        mean = job.a_step(spent)
        if mean < _SMALL * job.step:
            continue
        times = int((spent > 0).sum())
        every = float(job.trained.sum()) / max(times, 1)
        each = float(spent.sum()) / max(times, 1)
        on = [rank.rank for at, rank in enumerate(job.ranks) if job.spent[at][:, columns].sum() > 0.5 * spent.sum()]
        rank = on[0] if len(on) == 1 and not job.alone else None
        longest = int(np.flatnonzero(columns)[job.spent[:, :, columns].sum(axis=(0, 1)).argmax()])
        yield WhatIf(
            cause=cause,
            position=position,
            activity=job.moments[longest].activity,
            rank=rank,
            removed=dict.fromkeys(range(len(job.ranks)), columns[None, :].astype(np.float64)),
            evidence=(
                Evidence(f"{name} take {percent(mean / job.step)} of the time.", mean, "s"),
                Evidence(f"{_often(times, every)}, and it takes {amount(each)}.", each, "s"),
            ),
        )


def _often(times: int, every: float) -> str:
    if times == 1:
        return "It was seen once"
    return f"There is one every {every:.0f} steps" if every >= _NOT_ALL else "There is one in each step"


def uneven(job: Job) -> Iterator[WhatIf]:
    """A job whose slow steps are as fast as the median step, and one whose steps do not grow."""
    if len(job.seconds) < _FEW:
        return
    columns = job.is_own & np.array(
        [moment.activity not in OF_OTHER_CAUSES and moment.position not in OF_OTHER_POSITIONS for moment in job.moments]
    )
    steps = np.maximum(job.trained, 1)
    spent = job.spent / steps[None, :, None]
    spent[:, job.is_lossy] = median(spent[:, ~job.is_lossy], axis=1)[:, None]  # nothing is known about these
    growth = list(_growth(job, spent, columns))
    yield from growth
    if growth:
        return
    # longer samples need longer passes: that is the work itself
    columns &= ~np.array([moment.position in PASSES and moment.activity in THE_WORK for moment in job.moments])
    own = spent[:, :, columns].sum(axis=2).max(axis=0)
    own = own + _middle(spent[:, :, ~columns].sum(axis=2).max(axis=0))
    slow = own > _SLOW * _middle(own)
    first = _first_of_epochs(job)
    for what_if in _first(job, spent, slow & first, columns) if first is not None and slow.any() else ():
        yield what_if
        parts = np.stack([what_if.removed[rank] for rank in range(len(spent))])
        own = own - (spent * parts * columns).sum(axis=2).max(axis=0)
        spent = spent * (1.0 - parts)
        slow = own > _SLOW * _middle(own)
    if 2 <= slow.sum() <= _MOST_SLOW * len(slow):
        yield from _slow(job, spent, slow, own, columns)


def _period(slow: Flags, own: Floats) -> tuple[int, Flags]:
    """The number of steps from one slow step to the next, and these steps. 0 if they are not regular."""
    excess = np.maximum(own - _middle(own), 0.0) * slow
    first = np.flatnonzero(slow)[:_PHASES].tolist()
    best, at = 0, 0
    explained = _REGULAR * float(excess.sum())
    count = np.count_nonzero(slow)
    largest = np.cumsum(np.sort(excess)[::-1])
    for period in range(2, len(slow) // 3 + 1):
        if count < _COMPLETE * (len(slow) // period) or largest[(len(slow) - 1) // period] < explained * _ROUNDING:
            continue  # there are too few slow steps, or the largest of them explain too little
        for phase in {number % period for number in first}:
            members = slow[phase::period]
            if np.count_nonzero(members) < _COMPLETE * len(members):
                continue
            of_period = float(excess[phase::period].sum())
            if of_period > explained:
                best, at, explained = period, phase, of_period
    if not best:
        return 0, slow
    regular = np.zeros_like(slow)
    regular[at::best] = slow[at::best]
    return best, regular


def _slow(job: Job, spent: Floats, slow: Flags, own: Floats, columns: Flags) -> Iterator[WhatIf]:
    usual, slow = _period(slow, own)
    is_periodic = usual > 0
    excess = _excess(spent, slow, columns)
    moment = _largest(job, excess)
    at = job.index(moment)
    is_wait = moment.activity not in ON_CPU
    if is_wait and not is_periodic and excess[:, :, at].sum() < _OF_MOMENT * spent[:, :, at].sum():
        return  # waits differ: one that takes long in all steps is one cause, not two
    seconds = spent.sum(axis=2).max(axis=0)
    longest = _middle(seconds[slow])
    part = float(slow.sum() / np.count_nonzero(~job.is_lossy))
    often = f"Every {usual} steps," if is_periodic else f"{percent(part)} of the steps are slow:"
    share = float((seconds * slow).sum() / seconds.sum())
    subject = "one step takes" if is_periodic else "they take"
    rank = job.one_of_ranks(excess.sum(axis=(1, 2)))
    who = "the thread" if rank is None else f"rank {rank}"
    yield WhatIf(
        cause=CauseName.PERIODIC if is_periodic else CauseName.SLOW_STEPS,
        position=moment.position,
        activity=moment.activity,
        rank=rank,
        removed=_removed(spent, excess),
        evidence=(
            Evidence(
                f"{often} {subject} {amount(longest)}, and the others {amount(_middle(seconds[~slow]))}.",
                longest,
                "s",
            ),
            Evidence(f"{percent(share)} of the time is in these steps.", share, "1"),
            Evidence(
                f"In them {who} {activity_clause(moment.activity)} {POSITION_WORDS[moment.position].where}.",
                float(excess.sum(axis=(0, 1)).max()) / max(float(slow.sum()), 1.0),
                "s",
            ),
        ),
    )


def _first(job: Job, spent: Floats, slow: Flags, columns: Flags) -> Iterator[WhatIf]:
    """The first step of an epoch loads as fast as the others."""
    loads = np.array([moment.position in (Position.LOAD, Position.BETWEEN) for moment in job.moments]) & columns
    excess = _excess(spent, slow, loads)
    # a process that has started others copies each page of its memory when it next writes to it
    forks = slow & (job.events(0, StepEvent("worker_start")) > 0)
    excess = np.maximum(excess, _excess(spent, forks, job.is_own) if forks.any() else 0.0)
    epochs = max(int(job.counted(0, StepFlags.ENDS_EPOCH).sum()), 1)
    each = float(excess.sum(axis=2).max(axis=0).sum()) / epochs
    if each * epochs < _SMALL * job.step * job.steps:
        return
    starts = int((job.events(0, StepEvent("worker_start")) > 0).sum())
    moment = _largest(job, excess)
    yield WhatIf(
        cause=CauseName.WORKERS_RESTART if starts > _RESTARTS * epochs else CauseName.FIRST_OF_EPOCH,
        position=Position.LOAD,
        activity=moment.activity,
        removed=_removed(spent, excess),
        evidence=(
            Evidence(
                f"The beginning of each epoch takes {amount(each)} more than other steps. "
                f"An epoch has {job.trained.sum() / epochs:.0f} steps.",
                each,
                "s",
            ),
        ),
    )


def _growth(job: Job, spent: Floats, columns: Flags) -> Iterator[WhatIf]:
    """Steps as fast as the first one of the process, by lines through the places that grow. If the operators of forward
    passes grow, the samples do."""
    blocks = np.array_split(np.arange(len(spent[0])), min(_BLOCKS, len(spent[0]) // 3))
    if len(blocks) < _FEWEST_BLOCKS:
        return
    numbers = np.cumsum(job.trained).astype(np.float64) + _before(job)
    x = np.array([_middle(numbers[block]) for block in blocks])
    of_samples = np.array(
        [moment.position is Position.FORWARD and moment.activity in THE_WORK for moment in job.moments]
    )
    growing = _growing(job, spent, blocks, x, columns) & ~of_samples
    if not growing.any():
        return
    own = spent[:, :, growing].sum(axis=2).max(axis=0)
    slope = _line([_middle(own[block]) for block in blocks], x)[0]
    if slope * (numbers[-1] - numbers[0]) < _RISE * float(spent.sum(axis=2).max(axis=0).mean()):
        return
    excess = np.zeros_like(spent)
    for rank in range(len(spent)):
        for at in np.flatnonzero(growing):
            by_number, at_zero = _line([_middle(spent[rank, block, at]) for block in blocks], x)
            if by_number > 0.02 * slope:
                line = at_zero + by_number * numbers
                excess[rank, :, at] = np.clip(line - max(at_zero, 0.0), 0.0, spent[rank, :, at])
    if not excess.any():
        return
    moment = _largest(job, excess)
    yield WhatIf(
        cause=CauseName.GROWTH,
        position=moment.position,
        activity=moment.activity,
        removed=_removed(spent, excess),
        evidence=(
            Evidence(f"Steps take {amount(slope * 1000)} longer with every 1,000 steps.", slope, "s"),
            *_of_growth(job, spent * growing, moment, blocks),
        ),
    )


def _growing(job: Job, spent: Floats, blocks: Sequence[Integers], x: Floats, columns: Flags) -> Flags:
    """The moments in places that grow. `x`: of each block of steps, the number of its middle step.

    A place grows if it rises, not in one jump, by far more than the rest of the step does: a machine that slows down
    makes everything slower."""
    places = list(dict.fromkeys(moment.position for moment, is_own in zip(job.moments, columns, strict=True) if is_own))
    is_there = np.array([[moment.position is place for place in places] for moment in job.moments]) & columns[:, None]
    seconds = (spent @ is_there.astype(np.float64)).max(axis=0)
    taken = np.stack([_middles(seconds[block]) for block in blocks], axis=1)
    slopes, at_zero = _lines(taken, x)
    rises, means = slopes * (x[-1] - x[0]), taken.mean(axis=1)
    starts = np.maximum(at_zero + slopes * x[0], _NEARLY * means)
    relative = np.divide(rises, starts, out=np.zeros_like(rises), where=starts > 0)
    jumps = (taken[:, 2:] - taken[:, :-2]).max(axis=1)
    is_rising = (_rank_correlations(taken) >= _RISING) & (jumps < _JUMP * rises) & (relative >= _OWN_RISE)
    growing = set()
    for at in np.flatnonzero(is_rising):
        others = np.arange(len(places)) != at
        of_rest = _weighted_middle(relative[others], means[others])
        if places[at] is Position.BACKWARD and Position.FORWARD in places:  # longer samples need longer passes
            of_rest = max(of_rest, float(relative[places.index(Position.FORWARD)]))
        if relative[at] >= _BEYOND * of_rest:
            growing.add(places[at])
    grows: Flags = columns & np.array([moment.position in growing for moment in job.moments])
    return grows


def _rank_correlations(rows: Floats) -> Floats:
    """The rank correlation (Spearman's) of each row with the number of its columns."""
    count = rows.shape[1]
    distances = rows.argsort(axis=1).argsort(axis=1) - np.arange(count)
    correlations: Floats = 1.0 - 6.0 * (distances**2).sum(axis=1) / (count * (count**2 - 1))
    return correlations


def _of_growth(job: Job, spent: Floats, moment: Moment, blocks: Sequence[Integers]) -> Iterator[Evidence]:
    """What grows in the place of a moment, from the first block of steps to the last. `spent`: in places that grow."""
    at_first, now = blocks[0], blocks[-1]
    columns = np.array([moment_.position is moment.position for moment_ in job.moments])
    seconds = spent[:, :, columns].sum(axis=2).max(axis=0)
    where = POSITION_WORDS[moment.position].where
    before, after = (amount(_middle(seconds[block])) for block in (at_first, now))
    text = f"The training thread needs {after} {where}, and {before} at the beginning."
    yield Evidence(text, _middle(seconds[now]), "s")
    operators = sum(operator.get(moment.position, np.zeros_like(job.seconds)) for operator in job.operators)
    by_step = operators / np.maximum(job.trained, 1) / len(job.ranks)
    first, last = (_middle(by_step[block]) for block in (at_first, now))
    if moment.activity is Activity.OPERATOR and first:
        more = f"It runs {last:,.0f} operators there, and {first:,.0f} at the beginning."
        same = f"It runs {last:,.0f} operators there, as at the beginning: each takes longer."
        yield Evidence(more if last > _MORE * first else same, last, "{operator}")


def _line(y: Sequence[float] | Floats, x: Floats) -> tuple[float, float]:
    """The slope of a line through points, and its value at 0."""
    slopes, at_zero = _lines(np.asarray(y)[None], x)
    return float(slopes[0]), float(at_zero[0])


def _lines(rows: Floats, x: Floats) -> tuple[Floats, Floats]:
    """The slope of a line through the points of each row, and its value at 0."""
    middle = x.mean()
    slopes = rows @ (x - middle) / max(float((x - middle) @ (x - middle)), 1e-9)
    return slopes, rows.mean(axis=1) - slopes * middle


def _weighted_middle(values: Floats, weights: Floats) -> float:
    """The median of values with weights; 0 without any."""
    if not weights.sum():
        return 0.0
    order = values.argsort()
    return float(values[order][np.searchsorted(weights[order].cumsum(), weights.sum() / 2)])


def _middle(values: Floats) -> float:
    """The median of a few values, for which NumPy's own takes ten times as long."""
    return float(_middles(values[:, None])[0])


def _middles(values: Floats) -> Floats:
    """The medians of the columns of a table, or of several tables."""
    ordered = np.sort(values, axis=-2)
    count = values.shape[-2]
    middles: Floats = (ordered[..., (count - 1) // 2, :] + ordered[..., count // 2, :]) / 2
    return middles


def _before(job: Job) -> float:
    """The number of steps of the process before the first interval."""
    steps = job.ranks[0].measured.steps
    at = int(np.searchsorted(steps[:, 1], job.times[0, 0]))
    return float(steps[min(at, len(steps) - 1), 2])


def _first_of_epochs(job: Job) -> Flags | None:
    """The intervals with the end of an epoch, and those after them. None without an epoch's end."""
    ends: Flags = job.counted(0, StepFlags.ENDS_EPOCH) > 0
    if not ends.any():
        return None
    beside = ends.copy()
    beside[1:] |= ends[:-1]
    beside[:-1] |= ends[1:]
    return beside


def _excess(spent: Floats, slow: Flags, columns: Flags) -> Floats:
    """Of slow intervals: the seconds of each moment above its median in the others."""
    usual = _middles(spent[:, ~slow])[:, None, :]
    excess: Floats = np.maximum(spent - usual, 0.0) * slow[None, :, None] * columns
    return excess


def _removed(spent: Floats, excess: Floats) -> dict[int, Floats]:
    part = np.divide(excess, spent, out=np.zeros_like(spent), where=spent > 0)
    return {rank: part[rank] for rank in range(len(spent))}


def _largest(job: Job, excess: Floats) -> Moment:
    return job.moments[int(excess.sum(axis=(0, 1)).argmax())]
