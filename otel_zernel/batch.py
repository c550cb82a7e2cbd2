"""What flows through the pipelines: OTLP's own messages, parsed and encoded no more often than needed."""

from collections.abc import Callable, Iterable, Iterator
from typing import Generic, TypeVar

from google.protobuf.message import DecodeError as ProtobufDecodeError
from opentelemetry.proto.metrics.v1.metrics_pb2 import Metric, MetricsData, ResourceMetrics, ScopeMetrics
from opentelemetry.proto.trace.v1.trace_pb2 import TracesData

from otel_zernel.errors import DecodeError

MessageT = TypeVar("MessageT", MetricsData, TracesData)


class _Signal(Generic[MessageT]):
    """One signal of a batch: a message, its encoding or both, the number of items, and if a copy shares the message."""

    __slots__ = ("count", "encoded", "message", "shared", "type")

    def __init__(self, type_: type[MessageT], message: MessageT | None, encoded: bytes | None, count: int) -> None:
        self.type: type[MessageT] = type_
        self.message: MessageT | None = message
        self.encoded = encoded
        self.count = count
        self.shared = False

    def read(self) -> MessageT:
        message = self.message
        if message is None:
            message = self.message = self.type.FromString(self.encoded or b"")
        return message

    def edit(self) -> MessageT:
        message = self.read()
        if self.shared:
            message = self.type()
            message.CopyFrom(self.read())
            self.message, self.shared = message, False
        self.encoded = None
        return message

    def encode(self) -> bytes:
        if self.encoded is None:
            self.encoded = self.message.SerializeToString() if self.message is not None else b""
        return self.encoded

    def copy(self) -> "_Signal[MessageT]":
        twin = _Signal(self.type, self.message, self.encoded, self.count)
        self.shared = twin.shared = self.message is not None
        return twin


def count_points(metrics: MetricsData) -> int:
    """The number of data points in a message."""
    return sum(
        len(points(metric))
        for resource in metrics.resource_metrics
        for scope in resource.scope_metrics
        for metric in scope.metrics
    )


def count_spans(traces: TracesData) -> int:
    """The number of spans in a message."""
    return sum(len(scope.spans) for resource in traces.resource_spans for scope in resource.scope_spans)


def points(metric: Metric):  # type: ignore[no-untyped-def]  # five repeated fields without a common type
    """The data points of a metric of any type; an empty tuple for a metric without data."""
    kind = metric.WhichOneof("data")
    return getattr(metric, kind).data_points if kind else ()


class Batch:
    """Metrics and spans on their way, as OTLP.

    Reading is free and must not change anything. A processor that changes a batch asks for `edit_metrics()` or
    `edit_spans()`; only then is it encoded anew. Copies share what they hold until one of them is edited.
    """

    __slots__ = ("_metrics", "_spans")

    def __init__(self, metrics: MetricsData | None = None, spans: TracesData | None = None) -> None:
        """A batch of the caller's messages, which the caller must not touch any more."""
        self._metrics = _Signal(MetricsData, metrics, None, -1) if metrics is not None else None
        self._spans = _Signal(TracesData, spans, None, -1) if spans is not None else None

    @classmethod
    def from_bytes(cls, *, metrics: bytes | None = None, spans: bytes | None = None) -> "Batch":
        """A batch from untrusted bytes (`ExportMetricsServiceRequest` and `MetricsData` have one layout).

        Parses once, which validates and counts. Raises `DecodeError`.
        """
        batch = cls()
        try:
            if metrics is not None:
                batch._metrics = _Signal(MetricsData, MetricsData.FromString(metrics), metrics, -1)
            if spans is not None:
                batch._spans = _Signal(TracesData, TracesData.FromString(spans), spans, -1)
        except (ProtobufDecodeError, ValueError) as error:
            raise DecodeError(str(error)) from error
        return batch

    @classmethod
    def encoded(
        cls,
        *,
        metrics: bytes | None = None,
        point_count: int = 0,
        spans: bytes | None = None,
        span_count: int = 0,
    ) -> "Batch":
        """A batch that our own code has encoded and counted; parsed only if somebody reads it."""
        batch = cls()
        if metrics is not None:
            batch._metrics = _Signal(MetricsData, None, metrics, point_count)
        if spans is not None:
            batch._spans = _Signal(TracesData, None, spans, span_count)
        return batch

    @classmethod
    def join(cls, batches: Iterable["Batch"]) -> "Batch":
        """One batch of all, joined byte to byte: repeated fields of concatenated messages concatenate."""
        batches = list(batches)
        if len(batches) == 1:
            return batches[0]
        joined = cls()
        metrics = [batch for batch in batches if batch.has_metrics]
        spans = [batch for batch in batches if batch.has_spans]
        if metrics:
            data = b"".join(batch.metrics_bytes() for batch in metrics)
            joined._metrics = _Signal(MetricsData, None, data, sum(batch.point_count for batch in metrics))
        if spans:
            data = b"".join(batch.spans_bytes() for batch in spans)
            joined._spans = _Signal(TracesData, None, data, sum(batch.span_count for batch in spans))
        return joined

    @property
    def has_metrics(self) -> bool:
        return self._metrics is not None

    @property
    def has_spans(self) -> bool:
        return self._spans is not None

    @property
    def metrics(self) -> MetricsData:
        """The metrics, to read only; empty if there are none."""
        return self._metrics.read() if self._metrics else MetricsData()

    @property
    def spans(self) -> TracesData:
        """The spans, to read only; empty if there are none."""
        return self._spans.read() if self._spans else TracesData()

    def edit_metrics(self) -> MetricsData:
        """The metrics, to change in place. Do not keep it past the next copy, encoding or count of the batch."""
        if self._metrics is None:
            self._metrics = _Signal(MetricsData, MetricsData(), None, -1)
        self._metrics.count = -1
        return self._metrics.edit()

    def edit_spans(self) -> TracesData:
        """The spans, to change in place. Do not keep it past the next copy, encoding or count of the batch."""
        if self._spans is None:
            self._spans = _Signal(TracesData, TracesData(), None, -1)
        self._spans.count = -1
        return self._spans.edit()

    def metrics_bytes(self) -> bytes:
        """The metrics encoded as `MetricsData`: the bytes received, unless somebody edited them."""
        return self._metrics.encode() if self._metrics else b""

    def spans_bytes(self) -> bytes:
        """The spans encoded as `TracesData`: the bytes received, unless somebody edited them."""
        return self._spans.encode() if self._spans else b""

    @property
    def point_count(self) -> int:
        """The number of metric data points."""
        return _counted(self._metrics, count_points) if self._metrics else 0

    @property
    def span_count(self) -> int:
        """The number of spans."""
        return _counted(self._spans, count_spans) if self._spans else 0

    @property
    def item_count(self) -> int:
        """Data points plus spans: what `sizer: items` counts."""
        return self.point_count + self.span_count

    @property
    def byte_size(self) -> int:
        """The encoded size in bytes: what `sizer: bytes` counts."""
        return len(self.metrics_bytes()) + len(self.spans_bytes())

    def copy(self) -> "Batch":
        """A batch of its own for another pipeline; costs nothing until one of the two is edited."""
        return self.only(metrics=True, spans=True)

    def only(self, *, metrics: bool = False, spans: bool = False) -> "Batch":
        """A copy with the named signals alone."""
        twin = Batch()
        twin._metrics = self._metrics.copy() if metrics and self._metrics else None
        twin._spans = self._spans.copy() if spans and self._spans else None
        return twin

    def split(self, max_items: int) -> Iterator["Batch"]:
        """This batch in pieces of at most `max_items` items, in order; itself if it is small enough."""
        if self.item_count <= max_items:
            yield self
            return
        yield from (Batch(metrics=piece) for piece in _split_metrics(self.metrics, max_items))
        yield from (Batch(spans=piece) for piece in _split_spans(self.spans, max_items))


def _counted(signal: _Signal[MessageT], count: Callable[[MessageT], int]) -> int:
    if signal.count < 0:
        signal.count = count(signal.read())
    return signal.count


def _split_metrics(metrics: MetricsData, size: int) -> Iterator[MetricsData]:
    piece, room = MetricsData(), size
    for resource in metrics.resource_metrics:
        for scope in resource.scope_metrics:
            for metric in scope.metrics:
                header = _without_points(metric)
                rest = points(metric)[:]
                while rest:
                    taken, rest = rest[:room], rest[room:]
                    points(_add_metric(piece, resource, scope, header)).extend(taken)
                    room -= len(taken)
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
    piece, room = TracesData(), size
    for resource in traces.resource_spans:
        for scope in resource.scope_spans:
            rest = scope.spans[:]
            while rest:
                taken, rest = rest[:room], rest[room:]
                into = piece.resource_spans.add(resource=resource.resource, schema_url=resource.schema_url)
                into.scope_spans.add(scope=scope.scope, schema_url=scope.schema_url, spans=taken)
                room -= len(taken)
                if room == 0:
                    yield piece
                    piece, room = TracesData(), size
    if piece.resource_spans:
        yield piece
