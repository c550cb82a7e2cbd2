"""The batch: OTLP messages on their way through a pipeline, parsed and encoded only when needed."""

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from typing import Generic, TypeVar
from weakref import WeakSet

from google.protobuf.message import DecodeError as ProtobufDecodeError
from opentelemetry.proto.metrics.v1.metrics_pb2 import Metric, MetricsData, ResourceMetrics, ScopeMetrics
from opentelemetry.proto.trace.v1.trace_pb2 import TracesData

from otel_zernel.errors import DecodeError

MessageT = TypeVar("MessageT", MetricsData, TracesData)


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
    """The data points of a metric of any type. An empty tuple if the metric has no data."""
    data_type = metric.WhichOneof("data")
    return getattr(metric, data_type).data_points if data_type else ()


@dataclass(frozen=True, slots=True)
class _Format(Generic[MessageT]):
    """The message type of one signal, and the function that counts its items."""

    type: type[MessageT]
    count: Callable[[MessageT], int]


_METRICS = _Format(MetricsData, count_points)
_SPANS = _Format(TracesData, count_spans)


class _Content(Generic[MessageT]):
    """One signal of a batch: a message, its encoding, or both. A batch and its copies hold one content."""

    __slots__ = ("_count", "_encoded", "_format", "_holders", "_message")

    def __init__(
        self,
        format_: _Format[MessageT],
        message: MessageT | None = None,
        encoded: bytes | None = None,
        count: int | None = None,
    ) -> None:
        self._format: _Format[MessageT] = format_
        self._message: MessageT | None = message
        self._encoded = encoded
        self._count = count
        self._holders: WeakSet[Batch] | None = None
        """The batches that share this content. None if it was never shared."""

    @property
    def message(self) -> MessageT:
        if self._message is None:
            self._message = self._format.type.FromString(self._encoded or b"")
        return self._message

    @property
    def encoded(self) -> bytes:
        if self._encoded is None:
            self._encoded = self.message.SerializeToString()
        return self._encoded

    @property
    def count(self) -> int:
        if self._count is None:
            self._count = self._format.count(self.message)
        return self._count

    def _new_message(self) -> MessageT:
        """An own message for an editor. Parsing the encoding costs as much as a copy, and saves the other's parse."""
        if self._message is None:
            return self._format.type.FromString(self._encoded or b"")
        message = self._format.type()
        message.CopyFrom(self._message)
        return message

    def share(self, holder: "Batch", other: "Batch") -> "_Content[MessageT]":
        """This content, which `other` holds from here on as `holder` does."""
        if self._holders is None:
            self._holders = WeakSet((holder,))
        self._holders.add(other)
        return self

    def editable(self, holder: "Batch") -> "_Content[MessageT]":
        """A content that `holder` may change: this one if no other living batch holds it, else a copy."""
        if self._holders is not None and len(self._holders) > 1:
            self._holders.discard(holder)
            return _Content(self._format, self._new_message())
        self._message, self._encoded, self._count = self.message, None, None
        return self


class Batch:
    """Metrics and spans in the form of OTLP.

    Reading changes nothing and costs at most one parse. A processor that changes a batch calls `edit_metrics` or
    `edit_spans`; only then is the batch encoded again. Copies share their content until one of them is edited. The last
    batch that holds a content edits it in place. So code that keeps a part of a message longer than its batch must copy
    that part.
    """

    __slots__ = ("__weakref__", "_metrics", "_spans")

    def __init__(self, metrics: MetricsData | None = None, spans: TracesData | None = None) -> None:
        """The messages belong to the batch: the caller must not change them any more."""
        self._metrics = _Content(_METRICS, metrics) if metrics is not None else None
        self._spans = _Content(_SPANS, spans) if spans is not None else None

    @classmethod
    def from_bytes(cls, *, metrics: bytes | None = None, spans: bytes | None = None) -> "Batch":
        """A batch from untrusted bytes: an encoded `MetricsData` and `TracesData`, or the export requests of OTLP,
        which have the same encoding.

        Parses the bytes once, which validates them. Raises `DecodeError`.
        """
        batch = cls()
        try:
            if metrics is not None:
                batch._metrics = _Content(_METRICS, MetricsData.FromString(metrics), metrics)
            if spans is not None:
                batch._spans = _Content(_SPANS, TracesData.FromString(spans), spans)
        except (ProtobufDecodeError, ValueError) as error:
            raise DecodeError(str(error)) from error
        return batch

    @classmethod
    def encoded(
        cls, *, metrics: bytes | None = None, point_count: int = 0, spans: bytes | None = None, span_count: int = 0
    ) -> "Batch":
        """A batch that the collector has encoded and counted itself. It is parsed only if its messages are read."""
        batch = cls()
        if metrics is not None:
            batch._metrics = _Content(_METRICS, encoded=metrics, count=point_count)
        if spans is not None:
            batch._spans = _Content(_SPANS, encoded=spans, count=span_count)
        return batch

    @classmethod
    def join(cls, batches: Iterable["Batch"]) -> "Batch":
        """One batch with the items of all, in order. Concatenated encodings are the encoding of the joined message."""
        batches = list(batches)
        if len(batches) == 1:
            return batches[0]
        joined = cls()
        metrics = [batch for batch in batches if batch.has_metrics]
        spans = [batch for batch in batches if batch.has_spans]
        if metrics:
            data = b"".join(batch.metrics_bytes() for batch in metrics)
            joined._metrics = _Content(_METRICS, encoded=data, count=sum(batch.point_count for batch in metrics))
        if spans:
            data = b"".join(batch.spans_bytes() for batch in spans)
            joined._spans = _Content(_SPANS, encoded=data, count=sum(batch.span_count for batch in spans))
        return joined

    @property
    def has_metrics(self) -> bool:
        return self._metrics is not None

    @property
    def has_spans(self) -> bool:
        return self._spans is not None

    @property
    def metrics(self) -> MetricsData:
        """The metrics, read-only. Empty if the batch has none."""
        return self._metrics.message if self._metrics else MetricsData()

    @property
    def spans(self) -> TracesData:
        """The spans, read-only. Empty if the batch has none."""
        return self._spans.message if self._spans else TracesData()

    def edit_metrics(self) -> MetricsData:
        """The metrics, to change in place. Call it again after the batch was copied, encoded or counted."""
        content = self._metrics or _Content(_METRICS, MetricsData())
        self._metrics = content.editable(self)
        return self._metrics.message

    def edit_spans(self) -> TracesData:
        """The spans, to change in place. Call it again after the batch was copied, encoded or counted."""
        content = self._spans or _Content(_SPANS, TracesData())
        self._spans = content.editable(self)
        return self._spans.message

    def metrics_bytes(self) -> bytes:
        """The metrics encoded as `MetricsData`: the received bytes, unless the batch was edited."""
        return self._metrics.encoded if self._metrics else b""

    def spans_bytes(self) -> bytes:
        """The spans encoded as `TracesData`: the received bytes, unless the batch was edited."""
        return self._spans.encoded if self._spans else b""

    @property
    def point_count(self) -> int:
        """The number of metric data points."""
        return self._metrics.count if self._metrics else 0

    @property
    def span_count(self) -> int:
        """The number of spans."""
        return self._spans.count if self._spans else 0

    @property
    def item_count(self) -> int:
        """The number of data points and spans together, which `sizer: items` measures."""
        return self.point_count + self.span_count

    @property
    def byte_size(self) -> int:
        """The encoded size in bytes, which `sizer: bytes` measures."""
        return len(self.metrics_bytes()) + len(self.spans_bytes())

    def copy(self) -> "Batch":
        """An independent batch with the same content. Costs nothing until one of the two is edited."""
        return self.only(metrics=True, spans=True)

    def only(self, *, metrics: bool = False, spans: bool = False) -> "Batch":
        """A copy with only the named signals."""
        copy = Batch()
        copy._metrics = self._metrics.share(self, copy) if metrics and self._metrics else None
        copy._spans = self._spans.share(self, copy) if spans and self._spans else None
        return copy

    def split(self, max_items: int) -> Iterator["Batch"]:
        """Batches of at most `max_items` items each, in order: this batch itself if it is small enough."""
        if self.item_count <= max_items:
            yield self
            return
        yield from (Batch(metrics=piece) for piece in _split_metrics(self.metrics, max_items))
        yield from (Batch(spans=piece) for piece in _split_spans(self.spans, max_items))


def _split_metrics(metrics: MetricsData, size: int) -> Iterator[MetricsData]:
    piece, room = MetricsData(), size
    for resource in metrics.resource_metrics:
        for scope in resource.scope_metrics:
            for metric in scope.metrics:
                header = _without_points(metric)
                rest = points(metric)[:]
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
    piece, room = TracesData(), size
    for resource in traces.resource_spans:
        for scope in resource.scope_spans:
            rest = scope.spans[:]
            while rest:
                moved, rest = rest[:room], rest[room:]
                target = piece.resource_spans.add(resource=resource.resource, schema_url=resource.schema_url)
                target.scope_spans.add(scope=scope.scope, schema_url=scope.schema_url, spans=moved)
                room -= len(moved)
                if room == 0:
                    yield piece
                    piece, room = TracesData(), size
    if piece.resource_spans:
        yield piece
