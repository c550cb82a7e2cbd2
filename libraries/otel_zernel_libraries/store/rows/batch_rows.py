"""The rows of one batch: points with their series."""

from collections import Counter
from collections.abc import Callable, Iterator
from operator import itemgetter

from otel_zernel_libraries.store.rows.points import Row
from otel_zernel_libraries.store.rows.stored import StoredResource, StoredScope, StoredSeries
from otel_zernel_libraries.store.rows.tables import SPANS, TABLES, PointTable, TableName

_KEY = {table.name: itemgetter(*range(table.key)) for table in TABLES}


class SeriesRemoved(Exception):
    """Series were removed since the rows were made: make them again with new ids."""

    def __init__(self, removals: int) -> None:
        super().__init__("series were removed")
        self.removals = removals


class BatchRows:
    """The rows of one batch by table. Rows of points begin with their series, those of spans with the trace."""

    def __init__(self, removals: int = -1) -> None:
        """`removals` of series, to which the ids belong."""
        self.removals = removals
        self.rows: dict[TableName, list[Row]] = {}
        self.dropped: Counter[str] = Counter()
        """Points that were left out, by the reason."""

        self._seen: dict[TableName, tuple[set[tuple[StoredSeries, int]], int]] = {}
        """By table: the keys of its first rows, and the number of these rows."""

    def has_point(self, table: TableName, series: StoredSeries, time: int) -> bool:
        """Whether a row of this batch has the series and the time."""
        rows = self.rows_of(table)
        keys, known = self._seen.get(table, (set(), 0))
        keys.update((row[0], row[1]) for row in rows[known:])
        self._seen[table] = keys, len(rows)
        return (series, time) in keys

    def __len__(self) -> int:
        return sum(len(rows) for table, rows in self.rows.items() if table != "exemplars")

    def rows_of(self, table: TableName) -> list[Row]:
        """The rows of a table, to append to."""
        return self.rows.setdefault(table, [])

    def keep_times(self, earliest: int, latest: int) -> None:
        """Leaves out the points before `earliest` and after `latest`, and counts them."""
        times = [row[1] for rows in self.rows.values() for row in rows]
        if times and (min(times) < earliest or max(times) > latest):
            self.leave_out("too_old", lambda time: time < earliest)
            self.leave_out("too_far_ahead", lambda time: time > latest)

    def leave_out(self, reason: str, unwanted: Callable[[int], bool]) -> None:
        """Leaves out the points with some times, with their exemplars, and counts the points."""
        for table, rows in self.rows.items():
            kept = [row for row in rows if not unwanted(row[1])]
            if table != "exemplars" and len(kept) < len(rows):
                self.dropped[reason] += len(rows) - len(kept)
            self.rows[table] = kept

    def check(self, removals: int) -> None:
        """Raises `SeriesRemoved` if series were removed since the rows were made."""
        if removals != self.removals:
            raise SeriesRemoved(removals)

    def unresolved(self) -> list[StoredSeries]:
        """The series without an id, in the order of their fingerprints.

        Two of them have the same fingerprint if their points have the same attributes in another order.
        """
        of_points = [rows for table, rows in self.rows.items() if table != "spans"]
        found = {row[0] for rows in of_points for row in rows if row[0].id is None}
        return sorted(found, key=lambda one: one.fingerprint)

    def unresolved_resources(self) -> list[StoredResource]:
        """The resources of spans without an id."""
        return list({row[5]: None for row in self.rows.get("spans", ()) if row[5].id is None})

    def unresolved_scopes(self) -> list[StoredScope]:
        """The scopes of spans without an id."""
        return list({row[6]: None for row in self.rows.get("spans", ()) if row[6].id is None})

    def tables(self) -> Iterator[tuple[PointTable, list[Row]]]:
        """Each table with its rows, sorted by the key. Ids are in the place of series, resources and scopes.

        Equal keys keep their order. Writers that sort by the key cannot wait for each other in a circle.
        """
        for table in TABLES:
            if found := self.rows.get(table.name):
                if table is SPANS:
                    rows = [(*row[:5], row[5].id, row[6].id, *row[7:]) for row in found]
                else:
                    rows = [(row[0].id, *row[1:]) for row in found]
                rows.sort(key=_KEY[table.name])
                yield table, rows
