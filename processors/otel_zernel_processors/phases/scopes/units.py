"""Joins the units of a thread without a DataLoader into steps: a step is a period of units (see `scopes.periods`).

The first units wait until they show the period. Otherwise each half of a GAN's first steps would be a step of its own.
"""

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import replace
from typing import Final

from otel_zernel_libraries.training.interval_spans import NO_EVIDENCE
from otel_zernel_processors.phases.intake.intervals import AVERAGE, IN_PLACE, RUNS, ThreadInterval
from otel_zernel_processors.phases.scopes.periods import Periods, Signature
from otel_zernel_processors.phases.scopes.steps import Step

_WAIT_NS = 10_000_000_000
"""Units wait no longer than this for the period,"""
_UNITS = 32
"""no more of them than this,"""
_INTERVALS = 512
"""and no more intervals than this in them."""


class Units:
    """The units of one thread that are no step yet."""

    def __init__(self) -> None:
        self._periods = Periods()
        self._held: list[Step] = []
        """In order. The last one is the latest unit."""
        self._leads: list[int] = []
        """The times (ns) before the first passes of the units after the first one, if its beginning is unknown."""
        self._is_start_known = True
        self._is_settled = False

    @property
    def count(self) -> int:
        """Number of units so far."""
        return self._periods.count

    @property
    def begins(self) -> int | None:
        """When (ns) the first held unit begins; None without one."""
        return self._held[0].start if self._held else None

    @property
    def pending(self) -> int:
        """Number of intervals held."""
        return sum(len(unit.intervals) for unit in self._held)

    def add(self, unit: Step, signature: Signature, gap_ns: int | None) -> list[Step]:
        """Adds the next unit; returns the steps that it completes. `gap_ns` is the time before its first pass; None for
        the first unit of a loop, which begins with that pass: its data is added."""
        self._periods.add(signature, gap_ns)
        steps: list[Step] = []
        if self._is_settled and self._held and self._periods.position_of(self.count - 1) == 0:
            steps, self._held = [_joined(self._held)], []  # a period whose last units were left out
        self._held.append(unit)
        if not self._is_settled:
            self._is_start_known = self._is_start_known and gap_ns is not None
            self._leads += [] if gap_ns is None else [gap_ns]
            self._is_settled = self._periods.is_proven or self._has_waited()
        return [*steps, *self._complete()] if self._is_settled else steps

    def flush(self) -> list[Step]:
        """The held units as steps. The last one may be a part of a period."""
        self._begin_with_data()
        groups, self._held = self._groups(), []
        return [_joined(group) for group in groups]

    def _complete(self) -> list[Step]:
        """The steps of whole periods."""
        self._begin_with_data()
        *whole, last = self._groups()
        if self._periods.position_of(self.count - 1) == self._periods.period - 1:
            whole, last = [*whole, last], []
        self._held = last
        return [_joined(group) for group in whole]

    def _groups(self) -> list[list[Step]]:
        """The held units of each period."""
        groups: list[list[Step]] = []
        for number, unit in enumerate(self._held, self.count - len(self._held)):
            if not groups or self._periods.position_of(number) == 0:
                groups.append([])
            groups[-1].append(unit)
        return groups

    def _begin_with_data(self) -> None:
        """The first unit begins as long before its first pass as the next one with an equal pass."""
        if self._is_start_known or not self._held:
            return
        self._is_start_known = True
        unit, *others = self._held
        if self._is_piece(unit, others):
            unit.kind = "unfinished"
            return
        first = _first_pass(unit)
        for unit_, lead in zip(others, self._leads, strict=False):
            second = _first_pass(unit_)
            if first and second and _are_alike(first, second) and unit.intervals[0] is first:
                unit.intervals[0], unit.start = with_batch(first, second, lead)
                return

    def _is_piece(self, unit: Step, others: Sequence[Step]) -> bool:
        """Whether the collector attached within the step that begins with the first unit: before it the period has
        another unit, or each other unit at its position has more of something."""
        number = self.count - len(self._held)
        position = self._periods.position_of(number)
        same = [unit_ for at, unit_ in enumerate(others, number + 1) if self._periods.position_of(at) == position]
        fewest = (min(counts) for counts in zip(*map(_counts, same), strict=True))
        return position > 0 or any(count < least for count, least in zip(_counts(unit), fewest, strict=False))

    def _has_waited(self) -> bool:
        lasted = self._held[-1].end - self._held[0].start
        return lasted > _WAIT_NS or len(self._held) >= _UNITS or self.pending > _INTERVALS


def _first_pass(unit: Step) -> ThreadInterval | None:
    return next((interval for interval in unit.intervals if interval.kind in RUNS), None)


def _counts(unit: Step) -> tuple[int, ...]:
    """The operators in its first pass, its loads and its backward passes."""
    first = _first_pass(unit)
    kinds = Counter(interval.kind for interval in unit.intervals)
    return first.operators.count if first and first.operators else 0, kinds["data_loading"], kinds["backward"]


def _joined(units: list[Step]) -> Step:
    step, *others = units
    for unit in others:
        step.intervals += unit.intervals
        step.end = unit.end
        step.has_runs |= unit.has_runs
    return step


def with_batch(first: ThreadInterval, other: ThreadInterval, lead_ns: int) -> tuple[ThreadInterval, int]:
    """The first pass of a loop, with the evidence of its gap, and the time (ns) at which its batch begins. Both are
    taken from another pass, which follows `lead_ns` after the end of a step."""
    if not _are_alike(first, other) or lead_ns <= 0 or not first.operators or not other.operators:
        return first, first.start
    gap = other.operators.gap if first.operators.gap == NO_EVIDENCE else first.operators.gap
    return first._replace(operators=replace(first.operators, gap=gap)), first.start - lead_ns


def _are_alike(first: ThreadInterval, other: ThreadInterval) -> bool:
    """Whether both are whole passes of one kind: a collector may attach in the middle of a pass."""
    if first.operators is None or other.operators is None:
        return False
    return first.kind == other.kind and first.operators.count == other.operators.count


_OUTSIDE = frozenset({"update", IN_PLACE})
_FEWEST: Final = 4
"""Fewer changes of one tensor each are no average: a metric adds to its sums."""


def with_updates(intervals: list[ThreadInterval], *, by_hand: bool) -> list[ThreadInterval]:
    """The intervals of a step, in the order of their ends, with the kind of each update.

    After an optimizer, other weights are averaged. Changes of tensors after a backward pass are an update if no
    optimizer of the thread shows: `by_hand`. Else they clip gradients, and show nothing.
    """
    if _OUTSIDE.isdisjoint([interval.kind for interval in intervals]):
        return intervals
    return list(_settled(intervals, by_hand=by_hand))


def averages(interval: ThreadInterval) -> bool:
    """Whether it is an average, if it follows an optimizer."""
    count = interval.operators.count if interval.operators else 0
    return interval.kind == "update" or (interval.kind == IN_PLACE and count >= _FEWEST)


def _settled(intervals: Iterable[ThreadInterval], *, by_hand: bool) -> Iterable[ThreadInterval]:
    is_optimized = False
    for interval in intervals:
        if interval.kind in ("backward", "optimizer"):
            is_optimized = interval.kind == "optimizer"
        if interval.kind not in _OUTSIDE:
            yield interval
        elif is_optimized:
            if averages(interval):
                yield interval._replace(kind=AVERAGE)
        elif interval.kind == "update" or by_hand:
            yield interval._replace(kind="update")
