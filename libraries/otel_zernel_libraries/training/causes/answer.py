"""The answer on a job: its causes with their gains, the named ones first."""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from functools import lru_cache
from random import Random
from typing import Final, NamedTuple

import numpy as np

from otel_zernel_libraries.training.causes.advice import Case
from otel_zernel_libraries.training.causes.cause import WORTH, Cause, CauseName, DeviceTime, Hidden, JobAnswer, Unknown
from otel_zernel_libraries.training.causes.code import with_code
from otel_zernel_libraries.training.causes.devices import slow_devices, small_launches
from otel_zernel_libraries.training.causes.everywhere import everywhere
from otel_zernel_libraries.training.causes.job import FOR_CPU, Job, WhatIf
from otel_zernel_libraries.training.causes.memory import knows_memory, memory_growth
from otel_zernel_libraries.training.causes.ranks import over_ranks
from otel_zernel_libraries.training.causes.replays import NOTHING, LeftOut, Replays
from otel_zernel_libraries.training.causes.segments import seen_in_segment, segments
from otel_zernel_libraries.training.causes.steps import stops, uneven
from otel_zernel_libraries.training.causes.workers import has_workers, iterators, workers
from otel_zernel_libraries.training.device.streams import Floats, Integers
from otel_zernel_libraries.training.ledger import Activity, Position, phase_of
from otel_zernel_libraries.training.quantiles import quantile
from otel_zernel_libraries.training.verdicts import FEWEST_STEPS

_Find = Callable[[Job], Iterator[WhatIf]]
_WHAT_IFS: Final[Sequence[tuple[_Find, Callable[[Job], bool], Sequence[CauseName]]]] = (
    (stops, lambda _: True, (CauseName.EVALUATION, CauseName.CHECKPOINT, CauseName.COMPILE)),
    (
        over_ranks,
        lambda job: job.is_whole and not job.alone,
        (
            *(CauseName.STRAGGLER, CauseName.IMBALANCE, CauseName.SLOW_LINK),
            *(CauseName.SMALL_COLLECTIVES, CauseName.EXTRA_COLLECTIVES),
        ),
    ),
    (everywhere, lambda _: True, (CauseName.CPU_TAKEN, CauseName.CPU_QUOTA, CauseName.GIL, CauseName.THREADS)),
    (uneven, lambda _: True, (CauseName.SLOW_STEPS, CauseName.PERIODIC, CauseName.GROWTH, CauseName.FIRST_OF_EPOCH)),
    (memory_growth, knows_memory, (CauseName.MEMORY_GROWTH,)),
    (iterators, has_workers, (CauseName.ITERATOR_PER_STEP,)),
    (
        workers,
        has_workers,
        (CauseName.WORKERS_TOO_FEW, CauseName.WORKERS_SLOW, CauseName.WORKERS_RESTART),
    ),
    (segments, lambda _: True, (CauseName.SEGMENT,)),
    (small_launches, lambda job: job.has_device, (CauseName.SMALL_LAUNCHES, CauseName.COPIES)),
    (
        slow_devices,
        lambda job: job.has_device and any(rank.facts.gpu for rank in job.ranks),
        (CauseName.DEVICE_CLOCKS, CauseName.DEVICE_SHARED),
    ),
)
"""The what-ifs, when they can be made, and the causes that they show."""
_ORDER: Final = (
    frozenset({CauseName.EVALUATION, CauseName.CHECKPOINT, CauseName.COMPILE, CauseName.GROWTH}),
    frozenset({CauseName.FIRST_OF_EPOCH, CauseName.WORKERS_RESTART, CauseName.ITERATOR_PER_STEP}),
    frozenset({CauseName.PERIODIC, CauseName.SLOW_STEPS}),
    frozenset({CauseName.STRAGGLER, CauseName.EXTRA_COLLECTIVES}),
    frozenset({CauseName.GIL, CauseName.COPIES}),
    frozenset({CauseName.IMBALANCE, CauseName.SMALL_COLLECTIVES, CauseName.SLOW_LINK}),
    frozenset({CauseName.WORKERS_TOO_FEW, CauseName.WORKERS_SLOW}),
    frozenset({CauseName.SEGMENT}),
    frozenset({CauseName.SMALL_LAUNCHES}),
    frozenset({CauseName.CPU_QUOTA, CauseName.CPU_TAKEN, CauseName.THREADS}),
    frozenset({CauseName.DEVICE_CLOCKS, CauseName.DEVICE_SHARED, CauseName.MEMORY_GROWTH}),
)
"""The most specific causes first. The time that one of them explains is no other cause."""
_UNSURE: Final = 0.1
"""If something may save so much of a step, but is not certain, and nothing else is named, too little is known: it is
wrong to say that nothing is worth changing."""
_STAYS: Final = 0.005
"""A cause that was named before stays named with a share, and with a share without noise, that is smaller by so much of
a step than that of a new one."""
_LEADS: Final = 0.01
"""A cause takes the first place of another if its gain is larger by this share of a step."""
_MOST: Final = 16
_DRAWS: Final = 200
_BLOCKS: Final = 20
"""Neighbouring intervals are drawn together, because they are alike: there are about so many blocks."""
_FEW_BLOCKS: Final = 1.6
"""The bounds of a few blocks are wider, about as Student's distribution is than the normal one."""
_BOUNDS: Final = (0.05, 0.95)
"""Quantiles of resampled steps: nine times in ten, the noise of the steps is between them."""
_MODEL_OF_STEP, _MODEL_OF_GAIN = 0.03, 0.1
"""The error of the replay itself: the larger of these parts of a step and of the gain. About nine in ten of the real
jobs of docs/causes.md have less."""
_HIDDEN: Final = 0.25
"""Time is hidden if removing it saves less than this part of it."""
_FACTS: Final = frozenset(
    {
        *(CauseName.EVALUATION, CauseName.CHECKPOINT, CauseName.COMPILE),
        *(CauseName.DEVICE_CLOCKS, CauseName.DEVICE_SHARED),
    }
)
"""Facts of their own: even one evaluation is no noise, and a driver reports what slows down a GPU."""
_FAITHFUL: Final = 0.03
"""A replay of everything must take as long as the steps did, up to this share."""


def answer_on(job: Job, before: JobAnswer | None = None) -> JobAnswer:
    """The answer, or why there is none. Causes that the answer `before` has named stay for longer, so that verdicts do
    not flap."""
    replays = Replays(job)
    if job.steps < FEWEST_STEPS:
        return _unknown(job, Unknown.FEW_STEPS)
    if job.misses_device:
        return _unknown(job, Unknown.GPU_WORK)
    if abs(job.a_step(replays.without([NOTHING])[:, 0]) / job.step - 1) > _FAITHFUL:
        return _unknown(job, Unknown.REPLAY)
    made = [(find, names) for find, fits, names in _WHAT_IFS if fits(job)]
    what_ifs = [(what_if, replays.left_out(what_if)) for find, _ in made for what_if in find(job)]
    known = {cause.key for cause in before.causes} if before else set()
    named: list[Cause] = []
    others: list[Cause] = []
    claimed = _Claimed(np.zeros_like(job.spent), np.zeros_like(job.seconds))
    for names in _ORDER:
        left = [claimed.rest(replays, what_if, part) for what_if, part in what_ifs if what_if.cause in names]
        for (what_if, what_if_), (cause, certain) in zip(left, _causes(replays, left), strict=True):
            if _is_worth(cause, certain, is_known=cause.key in known, is_part=what_if.more > 0):
                named.append(with_code(job, cause, _case(job, cause), what_if_))
                claimed.add(what_if_)
            else:
                others.append(cause)
    if not named and any(cause.share >= _UNSURE for cause in others):
        return _unknown(job, Unknown.UNCERTAIN)
    return JobAnswer(
        step=job.step,
        steps=int(job.steps),
        ranks_seen=len(job.ranks),
        ranks_expected=job.expected,
        causes=_ranked(named, before)[:_MOST],
        hidden=tuple(_hidden(job, others)),
        best=_best(replays, [part for _, part in what_ifs]),
        looked_at=tuple(name for _, names in made for name in names),
        waits=0.0 if job.is_whole else _waits(job),
        device=_device(job),
    )


def _unknown(job: Job, why: Unknown) -> JobAnswer:
    return JobAnswer(
        step=job.step,
        steps=int(job.steps),
        ranks_seen=len(job.ranks),
        ranks_expected=job.expected,
        best=job.step,
        unknown=why,
    )


def _device(job: Job) -> DeviceTime | None:
    """What the GPUs did in a step, as the mean of the ranks whose launches are known."""
    known = [rank.device for rank in job.ranks if rank.device]
    if not known:
        return None
    by_rank = job.step / len(known)
    positions = dict.fromkeys(position for device in known for position in device.starved)
    return DeviceTime(
        busy=sum(device.busy for device in known) * by_rank,
        starved={at: sum(device.starved.get(at, 0.0) for device in known) * by_rank for at in positions},
        undetermined=sum(device.undetermined for device in known) * by_rank,
        exact=all(device.exact for device in known),
    )


def _is_worth(cause: Cause, certain: float, *, is_known: bool, is_part: bool) -> bool:
    """Whether a cause is named. `certain`: its gain without the noise of the steps, by the step. `is_known`: whether it
    was named before. `is_part`: whether it takes more than is known."""
    more = 0.0 if is_known else _STAYS
    if is_part and certain > more:
        return True
    is_certain = cause.cause in _FACTS or certain > more
    return cause.cause is CauseName.MEMORY_GROWTH or (cause.share >= WORTH - _STAYS + more and is_certain)


def _waits(job: Job) -> float:
    """The seconds of a step in which all ranks that are seen wait for others."""
    columns = [moment.activity is Activity.COLLECTIVE for moment in job.moments]
    return job.a_step(job.spent[:, :, columns].sum(axis=2).min(axis=0))


def _ranked(named: Sequence[Cause], before: JobAnswer | None) -> tuple[Cause, ...]:
    first = before.causes[0].key if before and before.causes else None
    largest = max((cause.share for cause in named), default=0.0)

    def place(cause: Cause) -> tuple[bool, float]:
        return cause.key != first or cause.share < largest - _LEADS, -cause.gain

    return tuple(sorted(named, key=place))


class _Claimed(NamedTuple):
    """The time that named causes explain."""

    spent: Floats
    """The part, by rank, interval and moment."""
    transfers: Floats
    """The part, by interval."""

    def add(self, left_out: LeftOut) -> None:
        """Adds the time of a named cause, which is without the time that others explain."""
        moments = left_out.moments
        self.spent[:, :, moments] = np.minimum(self.spent[:, :, moments] + left_out.part, 1.0)
        if left_out.faster is not None:
            np.maximum(self.transfers, left_out.faster, out=self.transfers)

    def rest(self, replays: Replays, what_if: WhatIf, left_out: LeftOut) -> tuple[WhatIf, LeftOut]:
        """A what-if without that time, but with its part of the waits for a CPU."""
        claimed = self.spent[:, :, left_out.moments]
        if claimed.any():
            left_out = left_out._replace(part=np.maximum(left_out.part - claimed, 0.0))
        left = replays.with_waits(left_out)
        claimed = self.spent[:, :, left.moments]
        if claimed.any():
            left = left._replace(part=np.minimum(left.part, 1.0 - claimed))
        if what_if.of_rest:
            job = replays.job
            all_of_it = np.ones((1, len(job.moments)))
            of_rest = np.stack([what_if.of_rest.get(rank, all_of_it) for rank in range(len(job.ranks))])
            left = left._replace(part=left.part * of_rest[:, :, left.moments])
        if left.faster is not None:
            left = left._replace(faster=np.maximum(left.faster - self.transfers, 0.0))
        if what_if.cause is CauseName.SEGMENT:
            what_if = replace(what_if, evidence=seen_in_segment(replays.job, left))
        return what_if, left


def _causes(replays: Replays, what_ifs: Sequence[tuple[WhatIf, LeftOut]]) -> list[tuple[Cause, float]]:
    """The causes, and the gain of each without the noise of the steps, by the step."""
    if not what_ifs:
        return []
    job = replays.job
    lasted = replays.without([NOTHING, *(part for _, part in what_ifs)])
    gains = lasted[:, :1] - lasted[:, 1:]
    means = np.array([job.a_step(column) for column in gains.T])
    blocks = min(int((~job.is_lossy).sum()), _BLOCKS)
    wider = 1.0 + _FEW_BLOCKS / max(blocks - 1, 1)
    drawn = _drawn(job, gains)
    low, high = (means + (quantile(drawn, bound) - means) * wider for bound in _BOUNDS)
    certain = low / job.step
    of_model = np.where(means > 0, np.maximum(_MODEL_OF_STEP * job.step, _MODEL_OF_GAIN * means), 0.0)
    low, high = low - of_model, high + of_model + [what_if.more for what_if, _ in what_ifs]
    low[[what_if.is_bound for what_if, _ in what_ifs]] = 0.0
    return [
        (_cause(job, what_if, float(means[at]), float(low[at]), float(high[at])), float(certain[at]))
        for at, (what_if, _) in enumerate(what_ifs)
    ]


@lru_cache(maxsize=8)
def _draws(count: int) -> Integers:
    """How often each of so many blocks is drawn: a row for each draw."""
    drawn_bytes = Random(0).randbytes(8 * _DRAWS * count)  # noqa: S311  # numpy.random would take 3.5 MB
    drawn = np.frombuffer(drawn_bytes, np.uint64) % np.uint64(count)
    cells = np.arange(_DRAWS).repeat(count) * count + drawn.astype(np.int64)
    return np.bincount(cells, minlength=_DRAWS * count).reshape(_DRAWS, count).astype(np.int64)


def _drawn(job: Job, gains: Floats) -> Floats:
    """Gains a step of resampled steps: a row for each draw. Nothing is replayed again."""
    gains, trained = gains[~job.is_lossy], job.trained[~job.is_lossy]
    size = max(len(gains) // _BLOCKS, 1)
    block = np.arange(len(gains)) // size
    sums = np.stack([np.bincount(block, weights=column) for column in (*gains.T, trained)], axis=1)
    drawn = _draws(len(sums)) @ sums
    by_step: Floats = drawn[:, :-1] / np.maximum(drawn[:, -1:], 1.0)
    return by_step


def _cause(job: Job, what_if: WhatIf, gain: float, low: float, high: float) -> Cause:
    position, activity = what_if.position, what_if.activity
    return Cause(
        cause=what_if.cause,
        phase=phase_of(position, activity) if position and activity else "",
        position=position,
        activity=activity,
        rank=what_if.rank,
        gain=gain,
        gain_low=max(min(low, gain), 0.0),
        gain_high=min(max(high, gain), max(job.step, gain)),
        share=gain / job.step,
        evidence=what_if.evidence,
    )


def _case(job: Job, cause: Cause) -> Case:
    """What decides on the advice."""
    rank = next((at for at, rank in enumerate(job.ranks) if rank.rank == cause.rank), 0)
    facts, load = job.ranks[rank].facts, _load(job, rank)
    return Case(cause.cause, cause.position, cause.activity, facts, cause.gain, job.step, load)


def _load(job: Job, rank: int) -> float:
    """The seconds of a step in which a rank loads data, without its waits for a CPU."""
    is_load = [moment.position is Position.LOAD and moment.activity not in FOR_CPU for moment in job.moments]
    loads = np.array(is_load) & job.is_own
    return job.a_step(job.spent[rank][:, loads].sum(axis=1))


def _best(replays: Replays, left_out: Sequence[LeftOut]) -> float:
    """The seconds of a step without all causes."""
    job = replays.job
    removed = np.zeros_like(job.spent)
    faster = np.zeros_like(job.seconds)
    apart = np.zeros(len(job.seconds), dtype=np.bool_)
    paces: dict[int, float] = {}
    for cause_ in left_out:
        removed[:, :, cause_.moments] = np.maximum(removed[:, :, cause_.moments], cause_.part)
        faster = faster if cause_.faster is None else np.maximum(faster, cause_.faster)
        apart = apart if cause_.apart is None else apart | cause_.apart
        paces.update({rank: pace * paces.get(rank, 1.0) for rank, pace in cause_.paces.items()})
    everything = LeftOut(np.arange(len(job.moments)), removed, faster, apart, paces)
    return job.a_step(replays.without([replays.with_waits(everything)])[:, 0])


def _hidden(job: Job, causes: Sequence[Cause]) -> list[Hidden]:
    hidden = [
        Hidden(position=cause.position, activity=cause.activity, rank=cause.rank, time=cause.evidence[0].value)
        for cause in causes
        if cause.cause is CauseName.SEGMENT and cause.position and cause.activity and job.has_device
        if cause.gain < _HIDDEN * cause.evidence[0].value
        if cause.evidence[0].value >= WORTH * job.step
    ]
    return sorted(hidden, key=lambda time_: -time_.time)[:_MOST]
