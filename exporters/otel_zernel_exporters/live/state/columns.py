"""Series of columns over time, a second of arrivals each: the heat of step durations, and the mean phase shares."""

from abc import ABC, abstractmethod
from bisect import bisect_left
from collections import deque
from collections.abc import Iterable
from typing import Any, Final, Generic, TypeVar

from otel_zernel.training import PHASES

_LASTS: Final = 1.0
"""Seconds that a column collects what arrives: the reports of many ranks come one after the other."""
BOUNDS: Final = tuple(float(f"{0.0005 * 2 ** (at / 6):.4g}") for at in range(1, 129))
"""The upper bounds (s) of the 128 buckets of a column: 0.5 ms to 22 minutes, 12 % each. The last one has all above."""
HEAT_LENGTH: Final = 200
SHARES_LENGTH: Final = 600

Open = TypeVar("Open")


class ColumnSeries(ABC, Generic[Open]):
    """Closed columns, `[time_ms, values]`, and the open one. Times are monotonic, in s, unless noted otherwise."""

    def __init__(self, most: int) -> None:
        self.closed: deque[list[Any]] = deque(maxlen=most)
        self._new = 0
        self._open: Open | None = None
        self._opened = 0.0
        self._time_ns = 0

    def opened(self, time_ns: int, now: float) -> Open:
        """The column for data with the time `time_ns` that arrives now."""
        self.close_due(now)
        if self._open is None:
            self._open, self._opened, self._time_ns = self._empty(), now, 0
        self._time_ns = max(self._time_ns, time_ns)
        return self._open

    def close_due(self, now: float) -> None:
        """Closes the open column after its second."""
        if self._open is not None and now - self._opened >= _LASTS:
            self.closed.append([self._time_ns // 1_000_000, self._values(self._open)])
            self._new += 1
            self._open = None

    def take_new(self) -> list[list[Any]]:
        """The columns that closed since the last call."""
        new, self._new = min(self._new, len(self.closed)), 0
        return list(self.closed)[len(self.closed) - new :]

    @abstractmethod
    def _empty(self) -> Open: ...

    @abstractmethod
    def _values(self, column: Open) -> list[Any]: ...


class Heat(ColumnSeries[list[int]]):
    """How many steps of all ranks had which duration."""

    def __init__(self) -> None:
        super().__init__(HEAT_LENGTH)

    def add(self, durations: Iterable[tuple[float, int]], time_ns: int, now: float) -> None:
        """Adds durations (s), each with its count."""
        column = self.opened(time_ns, now)
        for duration, count in durations:
            column[min(bisect_left(BOUNDS, duration), len(BOUNDS) - 1)] += count

    def _empty(self) -> list[int]:
        return [0] * len(BOUNDS)

    def _values(self, column: list[int]) -> list[Any]:
        return column


Growth = dict[str, dict[str, list[float]]]
"""By rank and source: the increase (s) of the time in each phase."""


class PhaseShares(ColumnSeries[Growth]):
    """The shares of the phases in the time of a rank, the mean of all ranks that reported."""

    def __init__(self) -> None:
        super().__init__(SHARES_LENGTH)

    def add(self, rank: str, source: str, phase: str, grown: float, time_ns: int, now: float) -> None:
        """Adds the increase (s) of the time that a rank spent in a phase."""
        if phase in PHASES and grown > 0:
            of_rank = self.opened(time_ns, now).setdefault(rank, {})
            of_rank.setdefault(source, [0.0] * len(PHASES))[PHASES.index(phase)] += grown

    def _empty(self) -> Growth:
        return {}

    def _values(self, column: Growth) -> list[Any]:
        best = [_best(by_source) for by_source in column.values()]
        return [round(sum(spent[at] / sum(spent) for spent in best) / len(best), 4) for at in range(len(PHASES))]


def _best(by_source: dict[str, list[float]]) -> list[float]:
    """The times by the best source that knows a phase: the order of the sources is that of their precision."""
    ordered = [by_source[one] for one in ("scopes", "threads", "signals") if one in by_source]
    ordered = ordered or list(by_source.values())
    return next((spent for spent in ordered if any(spent[:-1])), ordered[0])
