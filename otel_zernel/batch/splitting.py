"""Splits batches into smaller ones. Every piece repeats the resource and the scope of its items."""

from collections.abc import Iterator
from typing import TypeVar

from opentelemetry.proto.logs.v1.logs_pb2 import LogsData
from opentelemetry.proto.metrics.v1.metrics_pb2 import Metric, MetricsData, ResourceMetrics, ScopeMetrics
from opentelemetry.proto.trace.v1.trace_pb2 import TracesData

from otel_zernel.batch.batch import Batch
from otel_zernel.batch.counts import levels_of, points

Message = TypeVar("Message", TracesData, LogsData)


def split_batch(batch: Batch, max_items: int) -> Iterator[Batch]:
    """Batches of at most `max_items` items each, in order: the batch itself if it is small enough.

    Profiles stay together (`Batch.stays_alone`).
    """
    if batch.item_count <= max_items:
        yield batch
        return
    yield from (Batch(metrics=piece) for piece in _split_metrics(batch.metrics, max_items))
    yield from (Batch(spans=piece) for piece in _split(batch.spans, max_items))
    yield from (Batch(logs=piece) for piece in _split(batch.logs, max_items))
    if batch.stays_alone:
        yield batch.only(("profiles",))


def split_batch_by_bytes(batch: Batch, max_bytes: int) -> Iterator[Batch]:
    """Batches of at most `max_bytes` encoded bytes each, in order. A larger item is alone.

    Profiles stay together.
    """
    size, items = batch.byte_size, batch.item_count
    if size <= max_bytes or items <= 1 or batch.stays_alone:
        yield batch
        return
    for piece in split_batch(batch, max(1, min(items - 1, items * max_bytes // size))):
        yield from split_batch_by_bytes(piece, max_bytes)


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


def _split(message: Message, size: int) -> Iterator[Message]:
    """Pieces of at most `size` spans or log records each, in order."""
    resources, scopes, items = levels_of(message)
    piece, room = type(message)(), size
    for resource in getattr(message, resources):
        for scope in getattr(resource, scopes):
            rest = getattr(scope, items)[:]
            while rest:
                moved, rest = rest[:room], rest[room:]
                target = getattr(piece, resources).add(resource=resource.resource, schema_url=resource.schema_url)
                getattr(target, scopes).add(scope=scope.scope, schema_url=scope.schema_url, **{items: moved})
                room -= len(moved)
                if room == 0:
                    yield piece
                    piece, room = type(message)(), size
    if room < size:
        yield piece
