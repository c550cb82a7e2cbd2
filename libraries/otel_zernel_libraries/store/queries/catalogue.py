"""The series of a store, in memory: rows of series never change, so that only new ones are read."""

import json
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence, Sized
from typing import Any, Final, TypeVar

from otel_zernel.errors import ZernelError
from otel_zernel.runtime.threads import run_in_thread
from otel_zernel_libraries.store.queries.series import Attributes, SelectedSeries, SeriesEntry, SeriesFilter
from otel_zernel_libraries.store.reading import StoreReader, StoreState
from otel_zernel_libraries.store.statement import SqlStatement

_PIECE: Final = 10_000
"""Rows of one query."""
_MANY: Final = 1000
"""Series above which work on them takes milliseconds, so that it runs in a thread."""
_MOST_GAPS: Final = 100_000
_GAP_LIFE: Final = 60.0
"""Seconds. A transaction may commit a smaller id after a larger one. An id that stays away that long does not exist."""
_MOST_SELECTIONS: Final = 256
T = TypeVar("T")


class TooManySeries(ZernelError):
    """The store has more series than the catalogue may keep."""


class Catalogue:
    """All series of a store."""

    def __init__(self, reader: StoreReader, most: int) -> None:
        """Keeps `most` series at most."""
        self._reader = reader
        self._most = most
        self._series: dict[int, SeriesEntry] = {}
        self._resources: dict[int, Attributes] = {}
        self._last = 0
        self._gaps: dict[int, float] = {}
        """Ids that were not there, with the time after which nobody expects them."""
        self._selections: dict[SeriesFilter, SelectedSeries] = {}
        self._state: StoreState | None = None
        self._identities: set[str] = set()
        """Those of the store. Behind one address may be several servers with replicas of it."""

    def get(self, id_: int) -> SeriesEntry | None:
        """The series with an id, if it is known."""
        return self._series.get(id_)

    async def refresh(self, state: StoreState, now: float) -> None:
        """Reads the series that are new since the last call, and forgets those that the store has removed.

        Raises `TooManySeries`, or `Retryable` if the database does not answer.
        """
        if state == self._state:
            return
        if state.identity not in self._identities:
            self._forget()
        elif self._state and state.removals != self._state.removals:
            await self._drop_removed()
        rows = await self._new_rows()
        await self._learn_resources({row[6] for row in rows} - self._resources.keys())
        resources = self._resources
        entries = await in_thread_if_many(rows, lambda: {row[0]: _entry(row, resources) for row in rows})
        self._note_gaps(entries.keys(), now)
        if entries:
            self._series.update(entries)
            self._selections = {}
        self._identities.add(state.identity)
        self._state = state

    async def selected(self, wanted: SeriesFilter) -> SelectedSeries:
        """The series that a filter accepts, by id."""
        selection = self._selections.get(wanted)
        if selection is None:
            store, selections = [*self._series.values()], self._selections
            selection = await in_thread_if_many(store, lambda: SelectedSeries.of(wanted, store))
            if len(selections) >= _MOST_SELECTIONS:
                del selections[next(iter(selections))]
            selections[wanted] = (
                selection  # `refresh` has put another mapping in its place if the series changed meanwhile
            )
        return selection

    def _forget(self) -> None:
        """Another store took the place of the former one."""
        self._series = {}
        self._resources = {}
        self._gaps = {}
        self._selections = {}
        self._last = 0

    async def _drop_removed(self) -> None:
        """Forgets the series that are no longer in the store."""
        there: set[int] = set()
        last: int | None = 0
        while last is not None:
            statement = SqlStatement(self._reader.dialect)
            condition = f"id > {statement.number(last)} ORDER BY id LIMIT {_PIECE}"
            sql = f"SELECT id FROM {self._reader.table('series')} WHERE {condition}"  # noqa: S608
            ids = [row[0] for row in await self._reader.fetch(sql, *statement.values)]
            there.update(ids)
            last = ids[-1] if len(ids) == _PIECE else None
        for id_ in self._series.keys() - there:
            del self._series[id_]
        self._selections = {}

    async def _new_rows(self) -> list[Sequence[Any]]:
        rows: list[Sequence[Any]] = await self._rows_in(self._gaps) if self._gaps else []
        last = self._last
        while True:
            statement = SqlStatement(self._reader.dialect)
            some = await self._rows(statement, f"id > {statement.number(last)} ORDER BY id LIMIT {_PIECE}")
            rows += some
            if len(self._series) + len(rows) > self._most:
                raise TooManySeries(
                    f"the store has more than {self._most} series; raise max_series, or store fewer series"
                )
            if len(some) < _PIECE:
                return rows
            last = some[-1][0]

    async def _rows_in(self, ids: Iterable[int]) -> list[Sequence[Any]]:
        statement = SqlStatement(self._reader.dialect)
        return await self._rows(statement, statement.is_among("id", ids))

    async def _rows(self, statement: SqlStatement, condition: str) -> list[Sequence[Any]]:
        sql = (
            "SELECT id, metric, unit, type, temporality, monotonic, resource_id, attributes "  # noqa: S608
            f"FROM {self._reader.table('series')} WHERE {condition}"
        )
        return await self._reader.fetch(sql, *statement.values)

    async def _learn_resources(self, ids: set[int]) -> None:
        if ids:
            statement = SqlStatement(self._reader.dialect)
            sql = (
                f"SELECT id, attributes FROM {self._reader.table('resources')} "  # noqa: S608
                f"WHERE {statement.is_among('id', ids)}"
            )
            rows = await self._reader.fetch(sql, *statement.values)
            self._resources.update((row[0], json.loads(row[1])) for row in rows)

    def _note_gaps(self, ids: Collection[int], now: float) -> None:
        self._gaps = {id_: until for id_, until in self._gaps.items() if until > now and id_ not in ids}
        newest = max([*ids, self._last])
        if self._last and newest - self._last < _MOST_GAPS:
            missing = set(range(self._last + 1, newest)).difference(ids)
            self._gaps |= dict.fromkeys(sorted(missing)[-_PIECE:], now + _GAP_LIFE)
        self._last = newest


async def in_thread_if_many(series: Sized, work: Callable[[], T]) -> T:
    """The result of work on series, without holding the event loop for long."""
    return await run_in_thread(work) if len(series) > _MANY else work()


def _entry(row: Sequence[Any], resources: Mapping[int, Attributes]) -> SeriesEntry:
    id_, metric, unit, type_, temporality, monotonic, resource, attributes = row
    return SeriesEntry(
        id_,
        metric,
        unit,
        type_,
        temporality,
        bool(monotonic),
        resources.get(resource, {}),
        json.loads(attributes),
    )
