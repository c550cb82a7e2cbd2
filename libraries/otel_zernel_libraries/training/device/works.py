"""Solves for the work of a launch of each kind, so that the limits of all streams are true.

Each wait and each blocked launch is an equation, and every other launch is an inequality. There are a few works and
hundreds of equations. But an equation does not say after which pause of the device its work began. The solver assumes
one pause, takes the non-negative least squares, and repeats this until the pauses stay. Some works may remain open:
then launches of all kinds are assumed to be alike. The range of the total shows how much is open.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np

from otel_zernel_libraries.training.device.segments import Kind, Segment
from otel_zernel_libraries.training.device.streams import (
    NS,
    Finish,
    Flags,
    Floats,
    Integers,
    Limits,
    Rows,
    limits_of_queue,
    limits_of_waits,
    rows_of,
)

SHARE_ERROR: Final = 0.02
"""A busy share may be wrong by this much."""
_SPREAD: Final = 2.0
"""The standard deviation of works, by the mean work, if nothing else is known."""
_FEW: Final = 0.1
"""The same by the time: a few launches, for example of copies, may take this part of it."""
_NOISE: Final = 0.06
"""The same of the work between two limits, from step to step."""
_UNEVEN: Final = 0.01
"""The error of a limit because launches are not evenly spaced, by the time of a segment's launches."""
_SHORTEST: Final = 30e-6
"""Seconds: the error of a limit because kernels differ."""
_IMPOSSIBLE: Final = 9.0
"""Works with squares above the least by this much are impossible: three standard deviations."""
_MODEL: Final = 0.005
"""The error of a total that the limits determine, by the time."""
_ROUNDS: Final = 15
_GAIN: Final = 1e-3
_STEPS: Final = (0.01, 0.03, 0.1, 0.3, 1.0)
"""How far from the best total the range is searched, by the time."""


@dataclass(frozen=True)
class Solution:
    """Seconds of work for a launch of each kind."""

    best: Floats
    possible: tuple[Floats, ...]
    """Others for which the limits are true, up to the lowest and the highest total."""
    margin: Floats
    """How far (s) the total of all work may be below and above that of `possible`."""


class Equations:
    """The limits of all streams of a device."""

    def __init__(self, segments: Sequence[Segment], *, sees_queue: bool = True) -> None:
        """`sees_queue`: whether all launches are counted, so that a full queue says which of them are done."""
        names = {(segment.position, launch.stream): 0 for segment in segments for launch in segment.launches}
        self.kinds: dict[Kind, int] = {kind: index for index, kind in enumerate(names)}
        self.seconds = (segments[-1].end - segments[0].begin) * NS
        streams = dict.fromkeys(stream for _, stream in self.kinds)
        self.rows = [rows_of(segments, stream, self.kinds) for stream in streams]
        self.launches = np.sum([rows.counted[-1] for rows in self.rows], axis=0)
        """Of each kind."""
        self._limits: list[tuple[Rows, Limits]] = []
        causes: list[Integers] = []
        for number, rows in enumerate(self.rows, 1):
            limits = limits_of_waits(rows, segments)
            causes.append(limits.cause * (len(self.rows) + 1))  # one wait may be for several streams
            if sees_queue:
                queue = limits_of_queue(rows)
                causes.append(queue.cause * (len(self.rows) + 1) + number)  # a segment may wait and launch
                limits += queue
            self._limits.append((rows, limits))
        cause = np.concatenate(causes)
        self._order = np.argsort(cause, kind="stable")
        is_first = np.diff(cause[self._order], prepend=-1) > 0
        self._firsts = np.flatnonzero(is_first)
        self._group = is_first.cumsum() - 1
        exact = np.concatenate([limits.is_exact for _, limits in self._limits])[self._order]
        self._is_exact: Flags = exact[self._firsts]
        self._weight = np.ones(len(self._firsts))
        self._noise = 0.0

    @property
    def are_exact(self) -> bool:
        """Whether the thread has waited for the device at all."""
        return bool(self._is_exact.any())

    def solve(self, busy_share: float | None) -> Solution:
        """`busy_share`: how long the device was busy, by the time; None if unknown."""
        alike = self._alike()
        self._weigh(alike)
        if busy_share is not None and not self.are_exact:
            alike = alike * (busy_share / self._total(alike))
        goal = None if busy_share is None else (busy_share, SHARE_ERROR / 3**0.5)
        results = sorted((self._descend(start, alike, goal) for start in self._starts(alike)), key=lambda pair: pair[1])
        best = results[0][0]
        allowed = (0.0, 1.0) if busy_share is None else (busy_share - SHARE_ERROR, busy_share + SHARE_ERROR)
        solutions = [works for works, _ in results]
        possible, margin = self._range(solutions, max(allowed[0], 0.0), min(allowed[1], 1.0))
        if busy_share is None and not self.are_exact:
            totals = [self._total(works) for works in possible]
            middle = (min(totals) + max(totals)) / 2
            best = best * (middle / self._total(best))
        return Solution(best, tuple(possible), margin)

    def _total(self, works: Floats) -> float:
        """All work, by the time."""
        return float(self.launches @ works) / self.seconds

    def _alike(self) -> Floats:
        """The same work for all launches."""
        low, high = 0.0, self.seconds / float(self.launches.sum())
        ones = np.ones(len(self.launches))
        for _ in range(25):
            middle = (low + high) / 2
            if self._errors(middle * ones).sum() > 0:
                high = middle
            else:
                low = middle
        return max(low, high * 1e-3) * ones

    def _starts(self, works: Floats) -> Iterator[Floats]:
        """Works to begin with: the limits may have several solutions, which differ in the launches that take long."""
        yield works
        shares = self.launches * works
        for kind in np.flatnonzero(shares > 0.05 * shares.sum()):
            start = 0.4 * works
            start[kind] += 0.6 * shares.sum() / self.launches[kind]
            yield start
            start = works.copy()
            start[kind] *= 0.05
            yield start * (shares.sum() / (self.launches @ start))

    def _errors(self, works: Floats) -> Floats:
        """Of each cause: how late (s) the device reaches its limit. Only an exact limit may be reached too early."""
        return self._largest(self._late([rows.finish(works, at.row, at.part) for rows, at in self._limits]))

    def _errors_and_slopes(self, works: Floats) -> tuple[Floats, Floats]:
        """The errors and, of each cause and kind, how the error grows with the work."""
        finishes = [rows.finish(works, at.row, at.part) for rows, at in self._limits]
        late = self._late(finishes)
        largest = np.flatnonzero(late >= np.maximum.reduceat(late, self._firsts)[self._group])
        chosen = self._order[largest[np.diff(self._group[largest], prepend=-1) > 0]]
        slopes = np.zeros((len(chosen), len(self.kinds)))
        begin = 0
        for (rows, at), finish in zip(self._limits, finishes, strict=True):
            own = (chosen >= begin) & (chosen < begin + len(at.row))
            slopes[own] = rows.slopes(finish, at, chosen[own] - begin)
            begin += len(at.row)
        return self._largest(late), slopes

    def _late(self, finishes: Sequence[Finish]) -> Floats:
        late = [finish.time - at.time for finish, (_, at) in zip(finishes, self._limits, strict=True)]
        return np.concatenate(late)[self._order]

    def _largest(self, late: Floats) -> Floats:
        errors = np.maximum.reduceat(late, self._firsts)
        return np.where(self._is_exact, errors, np.maximum(errors, 0.0))

    def _weights(self, slopes: Floats, works: Floats, noise: float) -> Floats:
        """The weights of the causes: the inverse of the variance of their mean error. More equations reduce the error
        that comes from noise, but not the one from uneven launches. `noise`: the variance of an equation, at least."""
        exact = self._is_exact
        launching = np.mean(np.concatenate([rows.last - rows.first for rows in self.rows]))
        variance = (_UNEVEN * launching + _SHORTEST) ** 2
        count = max(int(exact.sum()), 1)
        if exact.any():
            variance += max(noise, float(np.mean((_NOISE * (slopes @ works)[exact]) ** 2))) / count
        weights: Floats = np.where(exact, 1 / count, 1 / max(len(exact) - count, 1)) / variance
        return weights

    def _weigh(self, works: Floats) -> None:
        errors, slopes = self._errors_and_slopes(works)
        self._noise = float(np.mean(errors[self._is_exact] ** 2)) if self._is_exact.any() else 0.0
        self._weight = self._weights(slopes, works, self._noise)

    def _squares(self, works: Floats) -> float:
        """The squares of the errors. The longer the device works without a pause, the more noise they may have."""
        errors, slopes = self._errors_and_slopes(works)
        return float(self._weights(slopes, works, self._noise) @ errors**2)

    def _descend(self, works: Floats, prior: Floats, goal: tuple[float, float] | None) -> tuple[Floats, float]:
        """The works with the least squares that a descent from `works` reaches, and their squares. `goal`: the total of
        the work by the time, and its standard deviation."""
        spread = (_SPREAD * prior + _FEW * self.seconds / self.launches) ** -2
        row = self.launches / self.seconds
        total, precision = (goal[0], goal[1] ** -2) if goal else (0.0, 0.0)
        is_joint = len(self.rows) > 1  # several streams work at once, so their sum may be more than the busy time

        def squares(at: Floats, errors: Floats) -> float:
            short = row @ at - total
            by_total = precision * (min(short, 0.0) if is_joint else short) ** 2
            return float(self._weight @ errors**2 + spread @ (at - prior) ** 2 + by_total)

        least = np.inf
        for _ in range(_ROUNDS):
            errors, all_slopes = self._errors_and_slopes(works)
            least = squares(works, errors)
            used = self._is_exact | (errors > 0)
            slopes, weights = all_slopes[used], self._weight[used]
            normal = slopes.T @ (slopes * weights[:, None]) + np.diag(spread)
            target = slopes.T @ (weights * (slopes @ works - errors[used])) + spread * prior
            if precision and not (is_joint and row @ works > total):
                normal += precision * np.outer(row, row)
                target += precision * total * row
            step = _non_negative(normal, target) - works
            for shortened in (1.0, 0.5, 0.25, 0.125):
                there = squares(works + shortened * step, self._errors(works + shortened * step))
                if there < least * (1 - _GAIN) - _GAIN:
                    works, least = works + shortened * step, there
                    break
            else:
                break
        return works, least

    def _range(self, solutions: Sequence[Floats], lowest: float, highest: float) -> tuple[list[Floats], Floats]:
        """Works with which the limits are true, from the lowest total to the highest, and the distance (s) of the true
        total below and above them, at most. `solutions`: of several descents, the best first."""
        best = solutions[0]
        limit = self._squares(best) + _IMPOSSIBLE
        possible = [
            works for works in solutions if self._squares(works) <= limit and lowest <= self._total(works) <= highest
        ]
        ordered = sorted([best, *possible], key=self._total)
        margin = np.full(2, _MODEL * self.seconds)
        for side, (works, end) in enumerate(((ordered[0], lowest), (ordered[-1], highest))):
            start = total = self._total(works)
            for step in _STEPS:
                goal = max(start - step, end) if side == 0 else min(start + step, end)
                if (goal >= total) if side == 0 else (goal <= total):
                    break
                reached = next(self._reach(works, goal, limit), None)
                if reached is None:
                    margin[side] = max(abs(goal - total) * self.seconds, margin[side])
                    break
                works, total = reached, goal
            possible += [works, *self._reach(works, total, limit)]
        return [*possible, *self._reach(best, self._total(best), limit)], margin

    def _reach(self, works: Floats, total: float, limit: float) -> Iterator[Floats]:
        """Works with this total whose squares are within the limit."""
        scale = max(total, 1e-9)
        for start in self._starts(works * (scale / max(self._total(works), 1e-9))):
            near = start
            if self._squares(near) > limit:
                near, _ = self._descend(start, np.maximum(start, 1e-9), (total, 1e-3))
                near = near * (scale / max(self._total(near), 1e-9))
            if self._squares(near) <= limit:
                yield near


def _non_negative(normal: Floats, target: Floats) -> Floats:
    """The least squares without negative values: what becomes negative is 0."""
    values = np.zeros(len(target))
    free = np.ones(len(target), dtype=np.bool_)
    while free.any():
        solved = np.linalg.solve(normal[np.ix_(free, free)], target[free])
        if (solved >= 0).all():
            values[free] = solved
            break
        free[np.flatnonzero(free)[solved.argmin()]] = False
    return values
