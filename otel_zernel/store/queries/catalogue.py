"""The series of a store, in memory: rows of series never change, so that only new ones are read."""

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from otel_zernel.errors import ZernelError
from otel_zernel.store.queries.labels import Attributes, has_label, label_of
from otel_zernel.store.queries.statement import SqlStatement
from otel_zernel.store.reading import StoreReader

_PIECE: Final = 10_000
"""Rows of one query."""
_MOST_GAPS: Final = 100_000
_GAP_LIFE: Final = 60.0
"""Seconds. A transaction may commit a smaller id after a larger one. An id that stays away that long does not exist."""
_MOST_SELECTIONS: Final = 256


class TooManySeries(ZernelError):
    """The store has more series than the catalogue may keep."""


@dataclass(slots=True, frozen=True, eq=False)
class SeriesEntry:
    """A series with its attributes as JSON values."""

    id: int
    metric: str
    unit: str
    type: str
    temporality: int | None
    monotonic: bool
    resource: Attributes
    attributes: Attributes

    def label(self, name: str) -> str | None:
        """The text of a label, by a short name or by the name of an attribute. Those of the point come first."""
        return self.metric if name == "metric" else label_of(name, self.attributes, self.resource)


@dataclass(slots=True, frozen=True)
class SeriesFilter:
    """The series with one of the metrics, and for each label with one of its values."""

    metrics: frozenset[str] = frozenset()
    """Empty for all."""
    labels: tuple[tuple[str, frozenset[str]], ...] = ()

    @property
    def is_empty(self) -> bool:
        """Whether it accepts every series."""
        return not self.metrics and not self.labels

    def accepts(self, series: SeriesEntry) -> bool:
        if self.metrics and series.metric not in self.metrics:
            return False
        return all(has_label(name, wanted, series.attributes, series.resource) for name, wanted in self.labels)


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
        self._selections: dict[SeriesFilter, Sequence[SeriesEntry]] = {}
        self._version = -1

    def __len__(self) -> int:
        return len(self._series)

    def __iter__(self) -> Any:
        return iter(self._series.values())

    def get(self, id_: int) -> SeriesEntry | None:
        """The series with an id, if it is known."""
        return self._series.get(id_)

    async def refresh(self, version: int, now: float) -> None:
        """Reads the series that are new since the last call. `version` is the number of the newest batch.

        Raises `TooManySeries`, or `Retryable` if the database does not answer.
        """
        if version == self._version:
            return
        if version < self._version:
            self._forget()
        found = await self._new_rows()
        await self._learn_resources({row[6] for row in found} - self._resources.keys())
        self._note_gaps([row[0] for row in found], now)
        for row in found:
            self._series[row[0]] = _entry(row, self._resources)
        if found:
            self._selections.clear()
        self._version = version

    def _forget(self) -> None:
        """Another store took the place of the former one."""
        for known in (self._series, self._resources, self._gaps, self._selections):
            known.clear()
        self._last = 0

    def selected(self, wanted: SeriesFilter) -> Sequence[SeriesEntry]:
        """The series that a filter accepts, by id."""
        found = self._selections.get(wanted)
        if found is None:
            found = [one for one in self._series.values() if wanted.accepts(one)]
            if len(self._selections) >= _MOST_SELECTIONS:
                del self._selections[next(iter(self._selections))]
            self._selections[wanted] = found
        return found

    async def _new_rows(self) -> list[Sequence[Any]]:
        found: list[Sequence[Any]] = await self._rows_in(self._gaps) if self._gaps else []
        last = self._last
        while True:
            statement = SqlStatement(self._reader.dialect)
            some = await self._rows(statement, f"id > {statement.number(last)} ORDER BY id LIMIT {_PIECE}")
            found += some
            if len(self._series) + len(found) > self._most:
                raise TooManySeries(
                    f"the store has more than {self._most} series; raise max_series, or store fewer series"
                )
            if len(some) < _PIECE:
                return found
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

    def _note_gaps(self, ids: list[int], now: float) -> None:
        self._gaps = {id_: until for id_, until in self._gaps.items() if until > now and id_ not in ids[:_PIECE]}
        newest = max([*ids, self._last])
        if self._last and newest - self._last < _MOST_GAPS:
            missing = set(range(self._last + 1, newest)).difference(ids)
            self._gaps |= dict.fromkeys(sorted(missing)[-_PIECE:], now + _GAP_LIFE)
        self._last = newest


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
