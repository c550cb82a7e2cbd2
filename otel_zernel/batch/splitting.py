"""Splits batches into smaller ones. Every piece repeats the resource and the scope of its items."""

from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import TypeVar

from opentelemetry.proto.logs.v1.logs_pb2 import LogRecord, LogsData, ResourceLogs, ScopeLogs
from opentelemetry.proto.metrics.v1.metrics_pb2 import Metric, MetricsData, ResourceMetrics, ScopeMetrics
from opentelemetry.proto.trace.v1.trace_pb2 import ResourceSpans, ScopeSpans, Span, TracesData

from otel_zernel.batch.batch import Batch
from otel_zernel.batch.counts import points

Message = TypeVar("Message", TracesData, LogsData)
Resource = TypeVar("Resource", ResourceSpans, ResourceLogs)
Scope = TypeVar("Scope", ScopeSpans, ScopeLogs)
Item = TypeVar("Item", Span, LogRecord)


def split_batch(batch: Batch, max_items: int) -> Iterator[Batch]:
    """Batches of at most `max_items` items each, in order: the batch itself if it is small enough.

    Profiles stay together (`Batch.stays_alone`).
    """
    if batch.item_count <= max_items:
        yield batch
        return
    yield from (Batch(metrics=piece) for piece in _split_metrics(batch.metrics, max_items))
    yield from (Batch(spans=piece) for piece in _split_spans(batch.spans, max_items))
    yield from (Batch(logs=piece) for piece in _split_logs(batch.logs, max_items))
    if batch.stays_alone:
        yield batch.only(("profiles",))


def _split_metrics(metrics: MetricsData, size: int) -> Iterator[MetricsData]:
    """Pieces of at most `size` data points each, in order. A metric is divided if needed."""
    piece, room = MetricsData(), size
    for resource in metrics.resource_metrics:
        for scope in resource.scope_metrics:
            for metric in scope.metrics:
                rest = points(metric)[:]
                header = _without_points(metric) if rest else metric  # a metric may have no data
                while rest:
                    moved, rest = rest[:room], rest[room:]
                    points(_add_metric(piece, resource, scope, header)).extend(moved)
                    room -= len(moved)
                    if room == 0:
                        yield piece
                        piece, room = MetricsData(), size
    if piece.resource_metrics:
        yield piece


def _without_points(metric: Metric) -> Metric:
    header = Metric()
    header.CopyFrom(metric)
    del points(header)[:]
    return header


def _add_metric(piece: MetricsData, resource: ResourceMetrics, scope: ScopeMetrics, header: Metric) -> Metric:
    last = piece.resource_metrics[-1] if piece.resource_metrics else None
    if last is None or last.resource != resource.resource:
        last = piece.resource_metrics.add(resource=resource.resource, schema_url=resource.schema_url)
    inner = last.scope_metrics[-1] if last.scope_metrics else None
    if inner is None or inner.scope != scope.scope:
        inner = last.scope_metrics.add(scope=scope.scope, schema_url=scope.schema_url)
    metric = inner.metrics.add()
    metric.CopyFrom(header)
    return metric


def _split_spans(traces: TracesData, size: int) -> Iterator[TracesData]:
    """Pieces of at most `size` spans each, in order."""

    def add(piece: TracesData, resource: ResourceSpans, scope: ScopeSpans, spans: Sequence[Span]) -> None:
        target = piece.resource_spans.add(resource=resource.resource, schema_url=resource.schema_url)
        target.scope_spans.add(scope=scope.scope, schema_url=scope.schema_url, spans=spans)

    found = ((resource, scope, scope.spans) for resource in traces.resource_spans for scope in resource.scope_spans)
    return _split(found, size, TracesData, add)


def _split_logs(logs: LogsData, size: int) -> Iterator[LogsData]:
    """Pieces of at most `size` log records each, in order."""

    def add(piece: LogsData, resource: ResourceLogs, scope: ScopeLogs, records: Sequence[LogRecord]) -> None:
        target = piece.resource_logs.add(resource=resource.resource, schema_url=resource.schema_url)
        target.scope_logs.add(scope=scope.scope, schema_url=scope.schema_url, log_records=records)

    found = ((resource, scope, scope.log_records) for resource in logs.resource_logs for scope in resource.scope_logs)
    return _split(found, size, LogsData, add)


def _split(
    found: Iterable[tuple[Resource, Scope, Sequence[Item]]],
    size: int,
    empty: Callable[[], Message],
    add: Callable[[Message, Resource, Scope, Sequence[Item]], None],
) -> Iterator[Message]:
    """`found` has the items of each scope. `add` appends some of them to a piece, with their resource and scope."""
    piece, room = empty(), size
    for resource, scope, items in found:
        rest = items[:]
        while rest:
            moved, rest = rest[:room], rest[room:]
            add(piece, resource, scope, moved)
            room -= len(moved)
            if room == 0:
                yield piece
                piece, room = empty(), size
    if room < size:
        yield piece
