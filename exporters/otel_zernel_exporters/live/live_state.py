"""The whole live state, its sequence numbers, and the deltas between them."""

import json
from collections import deque
from collections.abc import Callable, Iterator, Mapping
from typing import Any, Final

from otel_zernel.batch import Batch
from otel_zernel.clock import Clock
from otel_zernel_exporters.live.deltas import StateDifference
from otel_zernel_exporters.live.state import BOUNDS, HEAT_LENGTH, SHARES_LENGTH, TrainingState
from otel_zernel_libraries.serving.api.live import SCHEMA, LiveSource

_MOST_VALUES: Final = 100_000
"""Values in the deltas that are kept for readers that come back: about 15 MB."""
_MOST_DELTAS: Final = 600
_FOLLOWED: Final = 60.0
"""Seconds. Without a reader for longer, no deltas are kept."""
_PIECE: Final = 20
"""Ranks or GPUs that are rendered between two yields: about 1 ms."""


class LiveState(LiveSource):
    """Keeps the state of a training from batches. `advance` gives the current state the next sequence number."""

    def __init__(
        self,
        clock: Clock,
        collector: Callable[[], dict[str, Any]],
        drop: Callable[[int, str], None],
        *,
        history: int,
        expiration: float,
    ) -> None:
        """`collector` returns the state of the collector itself. `history` and `expiration` as `LiveConfig` has
        them."""
        self._clock = clock
        self._collector = collector
        self._training = TrainingState(history, expiration, drop)
        self._limits = {"timeline": history, "heat": HEAT_LENGTH, "shares": SHARES_LENGTH}
        self.seq = clock.time_ns() // 1_000_000
        """Begins with the time, so that a reader of a former process finds no equal number."""
        self.time_ms = self.seq
        self._rendered = _nothing()
        """The state with the number `seq`, without the values that `_training` has in the same form."""
        self._deltas: deque[tuple[dict[str, Any], int]] = deque()
        """The last deltas, in order, and their sizes."""
        self._values = 0
        self._advanced = clock.monotonic()
        self._advancing: Iterator[None] | None = None

    def resume(self, collector: Callable[[], dict[str, Any]], drop: Callable[[int, str], None]) -> None:
        """Goes on after a reload, with the functions of the new exporter."""
        self._collector, self._training.drop = collector, drop

    def adding(self, batch: Batch) -> Iterator[None]:
        """Adds a batch, which stays as it is, and yields about every millisecond. Raises `DecodeError`."""
        return self._training.adding(batch, self._clock.monotonic())

    def advance(self) -> None:
        """Gives the current state the next number, if it has changed. Finishes `advancing` if that is under way."""
        for _ in self.advancing():
            pass

    def advancing(self) -> Iterator[None]:
        """As `advance`; yields about every millisecond. No batch may be added meanwhile."""
        if self._advancing is None:
            self._advancing = self._advance()
        return self._advancing

    def snapshot(self) -> dict[str, Any]:
        self.advance()
        state = {**self.head(), **{name: _copied(table) for name, table in self._rendered.items()}}
        state["timeline"] = {rank: rows for rank in self._rendered["ranks"] if (rows := self.rows_of(rank))}
        columns, shares = ({id_: json.loads(one) for id_, one in history} for history in (self.heat(), self.shares()))
        return {**state, "heat": {"bounds": list(BOUNDS), "columns": columns}, "shares": shares}

    def changes_since(self, seq: int) -> list[dict[str, Any]] | None:
        self.advance()
        return self.kept_since(seq)

    def kept_since(self, seq: int) -> list[dict[str, Any]] | None:
        """As `changes_since`, without advancing."""
        if seq == self.seq:
            return []
        if not self._deltas or not self._deltas[0][0]["seq"] - 1 <= seq < self.seq:
            return None
        return [delta for delta, _ in self._deltas if delta["seq"] > seq]

    def head(self) -> dict[str, Any]:
        """The first fields of the state."""
        return {"schema": SCHEMA, "seq": self.seq, "time": self.time_ms, "limits": self._limits}

    def tables(self) -> Mapping[str, Mapping[str, Any]]:
        """`collector`, `gpus`, `ranks` and `jobs` of the state."""
        return self._rendered

    def rows_of(self, rank: str) -> list[Any]:
        """The timeline of a rank."""
        found = self._training.ranks.get(rank)
        return list(found.steps_shown.rows()) if found else []

    def heat(self) -> Iterator[tuple[str, bytes]]:
        """The columns of the heat of each job, as JSON."""
        return ((id_, job.heat.as_json()) for id_, job in self._training.jobs.items() if job.heat)

    def shares(self) -> Iterator[tuple[str, bytes]]:
        """The same of the shares."""
        return ((id_, job.shares.as_json()) for id_, job in self._training.jobs.items() if job.shares)

    def _advance(self) -> Iterator[None]:
        try:
            yield from self._steps_of_advance()
        except Exception:
            self.begin_anew()
            raise
        finally:
            self._advancing = None

    def begin_anew(self) -> None:
        """After a failure, some changes are lost: everything is rendered again, and readers get the whole state."""
        self.seq += 1
        self._deltas.clear()
        self._values = 0
        self._rendered = _nothing()
        for table in (self._training.gpus, self._training.ranks, self._training.jobs):
            table.change_all()

    def _steps_of_advance(self) -> Iterator[None]:
        now = self._clock.monotonic()
        is_followed, self._advanced = now - self._advanced <= _FOLLOWED, now
        self._training.settle(now)
        difference = StateDifference()
        yield from self._compare(difference, now)
        for id_, job in self._training.jobs.items():
            if heat := job.heat.take_new():
                difference.heat[id_] = heat
            if shares := job.shares.take_new():
                difference.shares[id_] = shares
        yield
        if difference:
            self.seq += 1
            self.time_ms = self._clock.time_ns() // 1_000_000
            yield from self._keep(difference, is_followed)

    def _compare(self, difference: StateDifference, now: float) -> Iterator[None]:
        """Renders the changes. `_rendered` is replaced object by object: readers may hold the former ones."""
        training = self._training
        collector = self._collector()
        difference.compare(["collector"], self._rendered["collector"], collector)
        self._rendered["collector"] = collector
        yield
        for position, id_ in enumerate(training.gpus.take_changed(), 1):
            gpu = training.gpus.get(id_)
            self._replace("gpus", id_, gpu.rendered() if gpu else None, difference)
            if position % _PIECE == 0:
                yield
        for position, id_ in enumerate(training.jobs.take_changed(), 1):
            job = training.jobs.get(id_)
            if job is None and id_ in self._rendered["jobs"]:
                difference.remove += [["heat", "columns", id_], ["shares", id_]]
            self._replace("jobs", id_, job.rendered() if job else None, difference)
            if position % _PIECE == 0:
                yield
        for position, id_ in enumerate(training.ranks.take_changed(), 1):
            self._compare_rank(id_, difference, now)
            if position % _PIECE == 0:
                yield

    def _compare_rank(self, id_: str, difference: StateDifference, now: float) -> None:
        rank = self._training.ranks.get(id_)
        had_rows = id_ in self._rendered["ranks"]
        self._replace("ranks", id_, rank.rendered(now) if rank else None, difference)
        if rank is None:
            if had_rows:
                difference.remove.append(["timeline", id_])
            return
        rows, is_whole = rank.steps_shown.take_new()
        if is_whole:
            difference.set.append([["timeline", id_], rows])
        elif rows:
            difference.timeline[id_] = rows

    def _replace(self, table: str, id_: str, after: dict[str, Any] | None, difference: StateDifference) -> None:
        difference.compare([table, id_], self._rendered[table].get(id_), after)
        if after is None:
            self._rendered[table].pop(id_, None)
        else:
            self._rendered[table][id_] = after

    def _keep(self, difference: StateDifference, is_followed: bool) -> Iterator[None]:
        if not is_followed:
            self._deltas.clear()
            self._values = 0
            return
        size = difference.size
        self._deltas.append((difference.delta(self.seq, self.time_ms), size))
        self._values += size
        while len(self._deltas) > 1 and (self._values > _MOST_VALUES or len(self._deltas) > _MOST_DELTAS):
            self._values -= self._deltas[0][1]
            yield from _released(self._deltas.popleft()[0])


def _released(delta: dict[str, Any]) -> Iterator[None]:
    """Frees the memory of a delta. That of 1,024 ranks with 200 steps at once would hold the event loop for 100 ms."""
    parts = [*delta.get("set", ()), *delta.get("append", {}).get("timeline", {}).values()]
    del delta
    while parts:
        del parts[-_PIECE:]
        yield


def _nothing() -> dict[str, dict[str, Any]]:
    """The tables of an empty state."""
    return {"collector": {}, "gpus": {}, "ranks": {}, "jobs": {}}


def _copied(table: dict[str, Any]) -> dict[str, Any]:
    """A table whose objects the caller may change."""
    return {id_: dict(one) if isinstance(one, dict) else one for id_, one in table.items()}
