"""Columns over time of each job, a second of arrivals each: the heat of step durations, and the mean phase shares."""

from bisect import bisect_left
from collections import Counter, deque
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

from otel_zernel_libraries.serving.api.answers import json_bytes
from otel_zernel_libraries.training import PHASES

_LASTS: Final = 1.0
"""Seconds that a column collects what arrives: the reports of many ranks come one after the other."""
BOUNDS: Final = tuple(float(f"{0.0005 * 2 ** (at / 6):.4g}") for at in range(1, 129))
"""The upper bounds (s) of the 128 buckets of a column: 0.5 ms to 22 minutes, 12 % each. The last one has all above."""
HEAT_LENGTH: Final = 200
SHARES_LENGTH: Final = 600


class ColumnHistory:
    """Closed columns `[time_ms, ...]` of one job, kept as JSON: lists take five times as much memory."""

    def __init__(self, most: int) -> None:
        self._closed: deque[bytes] = deque(maxlen=most)
        self._new: deque[list[Any]] = deque(maxlen=most)

    def __len__(self) -> int:
        return len(self._closed)

    def add_if(self, column: list[Any] | None) -> None:
        """Adds a column, if there is one."""
        if column:
            self._closed.append(json_bytes(column))
            self._new.append(column)

    def take_new(self) -> list[list[Any]]:
        """The columns since the last call."""
        new = list(self._new)
        self._new.clear()
        return new

    def as_json(self) -> bytes:
        """All columns, the oldest first."""
        return b"[%s]" % b",".join(self._closed)


@dataclass(slots=True)
class RankPart:
    """What one rank reported in the time of a column."""

    time_ns: int = 0
    counts: Counter[int] = field(default_factory=Counter)
    """The number of steps by bucket."""
    grown: dict[str, list[float]] = field(default_factory=dict)
    """By source: the increase (s) of the time in each phase."""


class OpenColumn:
    """Collects the reports of all ranks for a second. Times are monotonic, in s, unless noted otherwise."""

    def __init__(self) -> None:
        self._ranks: dict[str, RankPart] = {}
        self._opened = 0.0

    def add_durations(self, rank: str, durations: Iterable[tuple[float, int]], time_ns: int, now: float) -> None:
        """Adds durations (s) of steps, each with its count."""
        counts = self._of(rank, time_ns, now).counts
        for duration, count in durations:
            counts[min(bisect_left(BOUNDS, duration), len(BOUNDS) - 1)] += count

    def add_phase(self, rank: str, source: str, phase: str, grown: float, time_ns: int, now: float) -> None:
        """Adds the increase (s) of the time that a rank spent in a phase."""
        if phase in PHASES and grown > 0:
            spent = self._of(rank, time_ns, now).grown.setdefault(source, [0.0] * len(PHASES))
            spent[PHASES.index(phase)] += grown

    def take_due(self, now: float) -> dict[str, RankPart]:
        """The reports by rank, once their second is over; else none."""
        if not self._ranks or now - self._opened < _LASTS:
            return {}
        taken, self._ranks = self._ranks, {}
        return taken

    def put_back(self, rank: str, column: RankPart, now: float) -> None:
        """Keeps the reports of a rank whose job is not known yet for the next column."""
        kept = self._of(rank, column.time_ns, now)
        kept.counts.update(column.counts)
        for source, spent in column.grown.items():
            before = kept.grown.get(source, [0.0] * len(PHASES))
            kept.grown[source] = [one + more for one, more in zip(before, spent, strict=True)]

    def _of(self, rank: str, time_ns: int, now: float) -> RankPart:
        if not self._ranks:
            self._opened = now
        found = self._ranks.setdefault(rank, RankPart())
        found.time_ns = max(found.time_ns, time_ns)
        return found


def heat_of(ranks: Sequence[RankPart]) -> list[Any] | None:
    """`[time_ms, first bucket, [count, ...]]` of the ranks of a job; None without steps."""
    counts: Counter[int] = sum((rank.counts for rank in ranks), Counter())
    if not counts:
        return None
    buckets = range(min(counts), max(counts) + 1)
    return [_time_ms(ranks), buckets.start, [counts[at] for at in buckets]]


def shares_of(ranks: Sequence[RankPart]) -> list[Any] | None:
    """`[time_ms, [ratio, ...]]`: the shares of the phases, the mean of the ranks of a job; None without times."""
    best = [_best(rank.grown) for rank in ranks if rank.grown]
    if not best:
        return None
    means = (sum(spent[at] / sum(spent) for spent in best) / len(best) for at in range(len(PHASES)))
    return [_time_ms(ranks), [round(mean, 4) for mean in means]]


def _time_ms(ranks: Iterable[RankPart]) -> int:
    return max(rank.time_ns for rank in ranks) // 1_000_000


def _best(by_source: dict[str, list[float]]) -> list[float]:
    """The times by the best source that knows a phase: the order of the sources is that of their precision."""
    ordered = [by_source[one] for one in ("scopes", "threads", "signals") if one in by_source]
    ordered = ordered or list(by_source.values())
    return next((spent for spent in ordered if any(spent[:-1])), ordered[0])
