"""The rows of one batch: points with their series, and spans."""

import json
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from operator import itemgetter
from typing import Any, Final

from opentelemetry.proto.metrics.v1.metrics_pb2 import MetricsData
from opentelemetry.proto.trace.v1.trace_pb2 import Span, TracesData

from otel_zernel.batch import Batch
from otel_zernel_libraries.store.rows.points import (
    LATEST_TIME,
    Row,
    exemplar_rows,
    exponential_row,
    histogram_row,
    number_row,
    plain_number,
    signed64,
    summary_row,
)
from otel_zernel_libraries.store.rows.series_cache import (
    SeriesCache,
    SeriesFamily,
    SeriesType,
    StoredResource,
    StoredScope,
    StoredSeries,
    json_attributes,
    json_text,
    plain_attributes,
)
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
        without_id = {row[0] for rows in of_points for row in rows if row[0].id is None}
        return sorted(without_id, key=lambda entry: entry.fingerprint)

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
            if stored := self.rows.get(table.name):
                if table is SPANS:
                    rows = [(*row[:5], row[5].id, row[6].id, *row[7:]) for row in stored]
                else:
                    rows = [(row[0].id, *row[1:]) for row in stored]
                rows.sort(key=_KEY[table.name])
                yield table, rows


_TABLES: Final[dict[SeriesType, tuple[TableName, Callable[[Any], Row]]]] = {
    "gauge": ("points", number_row),
    "sum": ("points", number_row),
    "histogram": ("histograms", histogram_row),
    "exponential_histogram": ("exponential_histograms", exponential_row),
    "summary": ("summaries", summary_row),
}
_NUMBERS: Final = ("gauge", "sum")


def rows_of(batch: Batch, cache: SeriesCache, earliest: int = 0, latest: int = LATEST_TIME) -> BatchRows:
    """The rows of all points, at 3 us a point, and of all spans. Those with other times are left out and counted."""
    rows = BatchRows(cache.removals)
    _add_points(rows, batch.metrics, cache)
    _add_spans(rows, batch.spans, cache)
    rows.keep_times(earliest, latest)
    return rows


def _add_points(batch: BatchRows, metrics: MetricsData, cache: SeriesCache) -> None:
    for resource_metrics in metrics.resource_metrics:
        resource = cache.resource(resource_metrics.resource, resource_metrics.schema_url)
        for scope_metrics in resource_metrics.scope_metrics:
            scope = cache.scope(scope_metrics.scope, scope_metrics.schema_url)
            for metric in scope_metrics.metrics:
                type_ = metric.WhichOneof("data")
                if type_ in _TABLES:
                    data = getattr(metric, type_)
                    family = cache.family(resource, scope, metric, data, type_)
                    add = _add_numbers if type_ in _NUMBERS else _add
                    add(batch, cache, family, data.data_points)


def _add_numbers(batch: BatchRows, cache: SeriesCache, family: SeriesFamily, points: Iterable[Any]) -> None:
    rows = batch.rows_of("points")
    for point in points:
        plain = plain_number(point.SerializeToString())
        series = cache.plain_series(family, point, plain[0]) if plain and plain[1] <= LATEST_TIME else None
        if plain and series:
            rows.append((series, plain[1], *plain[2]))
        else:
            _add(batch, cache, family, (point,))


def _add(batch: BatchRows, cache: SeriesCache, family: SeriesFamily, points: Iterable[Any]) -> None:
    table, columns = _TABLES[family.type]
    rows = batch.rows_of(table)
    series_of, with_exemplars = cache.series, table != "summaries"
    for point in points:
        time: int = point.time_unix_nano
        if time > LATEST_TIME:
            batch.dropped["time_out_of_range"] += 1
            continue
        series = series_of(family, point.attributes)
        if with_exemplars and (exemplars := point.exemplars) and not batch.has_point(table, series, time):
            batch.rows_of("exemplars").extend((series, time, *row) for row in exemplar_rows(exemplars))
        rows.append((series, time, *columns(point)))


def _add_spans(batch: BatchRows, traces: TracesData, cache: SeriesCache) -> None:
    """Adds the rows of all spans. A resource and a scope stand in the place of their ids."""
    for resource_spans in traces.resource_spans:
        resource = cache.resource(resource_spans.resource, resource_spans.schema_url)
        for scope_spans in resource_spans.scope_spans:
            scope = cache.scope(scope_spans.scope, scope_spans.schema_url)
            for span in scope_spans.spans:
                if span.start_time_unix_nano > LATEST_TIME:
                    batch.dropped["time_out_of_range"] += 1
                else:
                    batch.rows_of("spans").append(_row(span, resource, scope))


def _row(span: Span, resource: StoredResource, scope: StoredScope) -> Row:
    return (
        span.trace_id,
        span.start_time_unix_nano,
        span.span_id,
        signed64(span.end_time_unix_nano),
        span.parent_span_id or None,
        resource,
        scope,
        json_text(span.name),
        span.kind,
        span.status.code,
        json_text(span.status.message),
        json_attributes(span.attributes),
        _json(_event(event) for event in span.events),
        _json(_link(link) for link in span.links),
        span.SerializeToString(),
    )


def _event(event: Span.Event) -> dict[str, Any]:
    attributes = plain_attributes(event.attributes)
    return {"time": event.time_unix_nano, "name": json_text(event.name), "attributes": attributes}


def _link(link: Span.Link) -> dict[str, Any]:
    attributes = plain_attributes(link.attributes)
    return {"trace_id": link.trace_id.hex(), "span_id": link.span_id.hex(), "attributes": attributes}


def _json(items: Iterable[dict[str, Any]]) -> str:
    return json.dumps(list(items), ensure_ascii=False, separators=(",", ":"))
