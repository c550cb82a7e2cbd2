"""Columns over time of each job, a second of arrivals each: the heat of step durations, and the mean phase shares."""

import math
from bisect import bisect_left
from collections import Counter, deque
from collections.abc import Iterable, Sequence
from typing import Any, Final

from otel_zernel.batch import Batch
from otel_zernel_libraries.serving.api.answers import json_bytes
from otel_zernel_libraries.training import PHASES
from otel_zernel_libraries.training.durations import value_of
from otel_zernel_libraries.training.state import ProcessIncrease, TrainingState

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
        self._new: deque[bytes] = deque(maxlen=most)

    def __len__(self) -> int:
        return len(self._closed)

    def add_if(self, column: list[Any] | None) -> None:
        """Adds a column, if there is one."""
        if column:
            encoded = json_bytes(column)
            self._closed.append(encoded)
            self._new.append(encoded)

    def take_new(self) -> list[bytes]:
        """The columns since the last call."""
        new = list(self._new)
        self._new.clear()
        return new

    def as_json(self) -> bytes:
        """All columns, the oldest first."""
        return b"[%s]" % b",".join(self._closed)


class JobColumns:
    """The columns of all jobs, by id. Times are monotonic, in s."""

    def __init__(self) -> None:
        self.heat: dict[str, ColumnHistory] = {}
        self.shares: dict[str, ColumnHistory] = {}
        self._settled = -math.inf
        self._opened: float | None = None
        """When the first data of the open column arrived."""

    def add_to(self, state: TrainingState, batch: Batch, now: float) -> None:
        """Adds a batch to the state. It belongs to the open column. Raises `DecodeError`."""
        if now - self._settled >= _LASTS:
            self.settle(state, now)
        try:
            state.add(batch, now)
        finally:
            if self._opened is None and any(process.increase for process in state.processes):
                self._opened = now

    def settle(self, state: TrainingState, now: float) -> None:
        """Settles the state, closes the open column once its second is over, and forgets the jobs that have left.

        Processes that wait for their job are in the next column.
        """
        self._settled = now
        state.settle(now)
        if self._opened is not None and now - self._opened >= _LASTS:
            self._close(state)
            self._opened = now if any(process.increase for process in state.processes) else None
        jobs = {process.job for process in state.processes} | {job.id for job in state.jobs}
        for histories in (self.heat, self.shares):
            for id_ in histories.keys() - jobs:
                del histories[id_]

    def _close(self, state: TrainingState) -> None:
        by_job: dict[str, list[ProcessIncrease]] = {}
        for process in state.processes:
            if process.job and process.increase:
                by_job.setdefault(process.job, []).append(process.increase)
                process.increase = None
        for job, increases in by_job.items():
            self.heat.setdefault(job, ColumnHistory(HEAT_LENGTH)).add_if(_heat_of(increases))
            self.shares.setdefault(job, ColumnHistory(SHARES_LENGTH)).add_if(_shares_of(increases))


def _heat_of(increases: Sequence[ProcessIncrease]) -> list[Any] | None:
    """`[time_ms, first bucket, [count, ...]]` of the ranks of a job; None without steps."""
    counts: Counter[int] = Counter()
    for increase in increases:
        for index, count in increase.steps.items():
            counts[min(bisect_left(BOUNDS, value_of(index)), len(BOUNDS) - 1)] += count
    if not counts:
        return None
    buckets = range(min(counts), max(counts) + 1)
    return [_time_ms(increases), buckets.start, [counts[at] for at in buckets]]


def _shares_of(increases: Sequence[ProcessIncrease]) -> list[Any] | None:
    """`[time_ms, [ratio, ...]]`: the shares of the phases, the mean of the ranks of a job; None without times."""
    best = [_best(increase.grown) for increase in increases if increase.grown]
    if not best:
        return None
    means = (sum(spent[at] / sum(spent) for spent in best) / len(best) for at in range(len(PHASES)))
    return [_time_ms(increases), [round(mean, 4) for mean in means]]


def _time_ms(increases: Iterable[ProcessIncrease]) -> int:
    return max(increase.time_ns for increase in increases) // 1_000_000


def _best(by_source: dict[str, list[float]]) -> list[float]:
    """The times by the best source that knows a phase: the order of the sources is that of their precision."""
    ordered = [by_source[source] for source in ("scopes", "threads", "signals") if source in by_source]
    return next((spent for spent in ordered if any(spent[:-1])), ordered[0])
