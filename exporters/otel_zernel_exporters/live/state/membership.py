"""Which rank belongs to which job, and what the ranks of a job reported together."""

from collections import deque
from collections.abc import Iterable, Mapping
from typing import Final

from otel_zernel_exporters.live.state.columns import OpenColumn, RankPart, heat_of, shares_of
from otel_zernel_exporters.live.state.jobs import ALONE, LiveJob, assign, name_of, spread_lateness
from otel_zernel_exporters.live.state.ranks import LiveRank
from otel_zernel_exporters.live.state.tables import Entities

_PATIENCE: Final = 3.0
"""Seconds that a rank of several waits for the first data of its job."""
_CLOSED_AT_ONCE: Final = 200
"""Jobs whose columns are added at a time: about 3 ms."""


class JobMembership:
    """Each rank belongs to one job. Times are monotonic, in s, unless noted otherwise."""

    def __init__(self, ranks: Entities[LiveRank], jobs: Entities[LiveJob]) -> None:
        self._ranks = ranks
        self._jobs = jobs
        self._column = OpenColumn()
        self._closing: deque[tuple[str, list[RankPart]]] = deque()
        """The ids of jobs, and their columns that are complete and not added yet."""
        self.is_due = False
        """Whether ranks or jobs are new, or their names have changed."""

    def add_durations(self, rank: LiveRank, durations: Iterable[tuple[float, int]], time_ns: int, now: float) -> None:
        """Adds durations (s) of steps to the heat of the rank's job, each with its count."""
        self._close_column(now)
        self._column.add_durations(rank.id, durations, time_ns, now)

    def add_phase(self, rank: LiveRank, source: str, phase: str, time_ns: int, now: float) -> None:
        """Adds the increase of the time that the rank spent in a phase to the shares of its job."""
        self._close_column(now)
        self._column.add_phase(rank.id, source, phase, rank.grown.get((source, phase), 0.0), time_ns, now)

    def live_as_long_as_their_ranks(self) -> None:
        """Jobs of one rank have no data of their own."""
        for job in self._jobs:
            if job.is_alone and (rank := self._ranks.get(job.key[1])):
                job.touched, job.ended_at = rank.touched, rank.ended_at

    def settle(self, now: float) -> None:
        """Closes a column that is due, finds the job of each rank, and gives the ranks their lateness."""
        self._close_column(now)
        if self.is_due:
            self._assign(now)
        for job in filter(None, map(self._jobs.get, self._jobs.changed)):
            self._ranks.changed |= spread_lateness(job, self._ranks.get)

    def _close_column(self, now: float) -> None:
        if due := self._column.take_due(now):
            self._take(due, now)
        for _ in range(min(len(self._closing), _CLOSED_AT_ONCE)):
            id_, columns = self._closing.popleft()
            if job := self._jobs.get(id_):
                job.heat.add_if(heat_of(columns))
                job.shares.add_if(shares_of(columns))

    def _take(self, due: Mapping[str, RankPart], now: float) -> None:
        if self.is_due:
            self._assign(now)
        by_job: dict[str, list[RankPart]] = {}
        for id_, column in due.items():
            rank = self._ranks.get(id_)
            if rank and rank.job:
                by_job.setdefault(rank.job, []).append(column)
            elif rank:
                self._column.put_back(id_, column, now)
        self._closing.extend(by_job.items())

    def _assign(self, now: float) -> None:
        def alone(rank: LiveRank) -> LiveJob | None:
            if rank.rank is not None and now - rank.appeared < _PATIENCE:
                return None
            return self._jobs.get(rank.id) or self._jobs.place(rank.id, LiveJob((ALONE, rank.id)), now)

        by_key = {job.key: job for job in self._jobs}
        self._ranks.changed |= assign(by_key, self._ranks, alone)
        for id_, job in self._jobs.items():
            if job.is_alone and not job.ranks:
                self._jobs.remove(id_)
            job.name = name_of(job, self._ranks.get)
        self._jobs.left.clear()
        self._jobs.changed.update(id_ for id_, _ in self._jobs.items())
        self.is_due = any(not rank.job for rank in self._ranks)
