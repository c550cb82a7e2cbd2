"""From a batch of metrics to the rows of the store."""

from collections.abc import Callable, Iterable
from typing import Any, Final

from opentelemetry.proto.metrics.v1.metrics_pb2 import MetricsData

from otel_zernel_libraries.store.rows.batch_rows import BatchRows
from otel_zernel_libraries.store.rows.integers import LATEST_TIME
from otel_zernel_libraries.store.rows.plain_numbers import plain_number
from otel_zernel_libraries.store.rows.points import (
    Row,
    exemplar_rows,
    exponential_row,
    histogram_row,
    number_row,
    summary_row,
)
from otel_zernel_libraries.store.rows.series_cache import SeriesCache, SeriesFamily
from otel_zernel_libraries.store.rows.stored import SeriesType
from otel_zernel_libraries.store.rows.tables import TableName

_TABLES: Final[dict[SeriesType, tuple[TableName, Callable[[Any], Row]]]] = {
    "gauge": ("points", number_row),
    "sum": ("points", number_row),
    "histogram": ("histograms", histogram_row),
    "exponential_histogram": ("exponential_histograms", exponential_row),
    "summary": ("summaries", summary_row),
}
_NUMBERS: Final = ("gauge", "sum")


def rows_of(metrics: MetricsData, cache: SeriesCache) -> BatchRows:
    """The rows of all points, at 3 us a point."""
    batch = BatchRows(cache.removals)
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
    return batch


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
