"""A training process for the tests: spans in the form of docs/development/spans.md."""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from opentelemetry.proto.common.v1.common_pb2 import InstrumentationScope
from opentelemetry.proto.logs.v1.logs_pb2 import LogRecord, LogsData, ResourceLogs, ScopeLogs
from opentelemetry.proto.metrics.v1.metrics_pb2 import (
    DataPointFlags,
    NumberDataPoint,
)
from opentelemetry.proto.resource.v1.resource_pb2 import Resource
from opentelemetry.proto.trace.v1.trace_pb2 import ResourceSpans, ScopeSpans, Span, TracesData

from otel_zernel.batch import Batch
from otel_zernel.otlp.points import AttributeValue, key_values
from otel_zernel_processors.phases.intake.intervals import ThreadInterval, read_spans
from tests.otlp import data, gauge, metrics_in, spans_in

MS = 1_000_000
START = 1_700_000_000_000_000_000
NAMES = {
    "data_loading": "enumerate(DataLoader)#_SingleProcessDataLoaderIter.__next__",
    "optimizer": "Optimizer.step#AdamW.step",
    "zero_grad": "Optimizer.zero_grad#AdamW.zero_grad",
    "backward": "backward",
}


def dotted(attributes: Mapping[str, AttributeValue]) -> dict[str, AttributeValue]:
    """Names in the form of OpenTelemetry: `process_pid` becomes `process.pid`, `world_size` stays."""
    return {
        name.replace("_", ".")
        .replace("world.size", "world_size")
        .replace("local.rank", "local_rank")
        .replace("parent.pid", "parent_pid"): value
        for name, value in attributes.items()
    }


def resource_of(pid: int = 42, created: str = "2026-01-01T00:00:00Z", **more: AttributeValue) -> Resource:
    """The resource of a training process."""
    known: dict[str, AttributeValue] = {"process.pid": pid, "process.creation.time": created, "host.name": "node"}
    return Resource(attributes=key_values({**known, **dotted(more)}))


def span_of(kind: str, start: float, end: float, *, name: str = "", thread: int = 1, **more: AttributeValue) -> Span:
    """A span from `start` to `end`, in ms since START."""
    extra = {f"zernel.{key}".replace("_", "."): value for key, value in more.items()}
    extra = {**_required(kind, name, extra), **extra}
    return Span(
        name=name or NAMES.get(kind, kind),
        start_time_unix_nano=START + round(start * MS),
        end_time_unix_nano=START + round(end * MS),
        attributes=key_values({"zernel.interval": kind, "thread.id": thread, **extra}),
    )


def _required(kind: str, name: str, more: Mapping[str, AttributeValue]) -> Mapping[str, AttributeValue]:
    """The attributes that each span of a kind has."""
    match kind:
        case "collective":
            return {
                "zernel.nccl.operation": name or "all_reduce",
                "zernel.timing.source": "host_upper_bound",
                "zernel.nccl.bytes": 8,
                "zernel.nccl.communicator": "0x1",
            }
        case "operators":
            model: dict[str, AttributeValue] = {
                "zernel.operators.count": 1,
                "zernel.operators.kind": "model",
                "zernel.grad": True,
            }
            return {**model, "zernel.operators.end": "operator" if more.get("zernel.grad", True) else "region"}
        case "process" | "worker":
            worker = {"zernel.dataloader.worker.pid": 7} if kind == "worker" else {}
            return {**worker, **_ENDINGS[str(more.get("zernel.process.end", "exec"))]}
        case _:
            return {}


_ENDINGS: Mapping[str, Mapping[str, AttributeValue]] = {
    "exec": {"zernel.process.end": "exec", "zernel.process.exec": "sh"},
    "exit": {"process.exit.code": 0},
    "signal": {"zernel.process.signal": 9, "process.signal": "SIGKILL"},
}


def batch_of(spans: Iterable[Span], resource: Resource | None = None) -> Batch:
    """A batch in the form of the ebpf receiver."""
    scope = ScopeSpans(scope=InstrumentationScope(name="otel_zernel_receivers.ebpf"), spans=spans)
    return Batch(
        spans=TracesData(resource_spans=[ResourceSpans(resource=resource or resource_of(), scope_spans=[scope])])
    )


def records_batch(records: Iterable[LogRecord], resource: Resource) -> Batch:
    """A batch with log records of a process."""
    scopes = [ScopeLogs(log_records=records)]
    return Batch(logs=LogsData(resource_logs=[ResourceLogs(resource=resource, scope_logs=scopes)]))


@dataclass
class Loop:
    """A training loop that records its spans; times in ms."""

    now: float = 0.0
    thread: int = 1
    spans: list[Span] = field(default_factory=list)

    def do(self, kind: str, lasts: float, **more: Any) -> "Loop":
        """Spends time in a span."""
        self.spans.append(span_of(kind, self.now, self.now + lasts, thread=self.thread, **more))
        return self.wait(lasts)

    def wait(self, lasts: float) -> "Loop":
        """Spends time outside any span."""
        self.now += lasts
        return self

    def load(self, lasts: float = 5.0) -> "Loop":
        return self.do("data_loading", lasts)

    def train(self, forward: float = 10.0, backward: float = 12.0, optimizer: float = 4.0, tail: float = 0.1) -> "Loop":
        """A step's work after its load: forward, backward, optimizer, zero_grad (1 ms), and other code (`tail`)."""
        self.wait(forward).do("backward", backward)
        return self.do("optimizer", optimizer).do("zero_grad", 1.0).wait(tail)

    def steps(self, count: int, load: float = 5.0, **lasts: float) -> "Loop":
        """Whole steps."""
        for _ in range(count):
            self.load(load).train(**lasts)
        return self


def values_of(batches: Iterable[Batch], name: str) -> list[tuple[dict[str, AttributeValue], float]]:
    """The attributes and the value of each number point of a metric, in order."""
    return [
        (attributes_of(point.attributes), point.as_int or point.as_double)
        for metric in metrics_of(batches, name)
        for point in (metric.sum.data_points or metric.gauge.data_points)
    ]


def metrics_of(batches: Iterable[Batch], name: str) -> Iterator[Any]:
    """The metrics of this name."""
    for batch in batches:
        yield from (metric for metric in metrics_in(batch.metrics) if metric.name == name)


def spans_of(batches: Iterable[Batch]) -> list[Span]:
    """All spans."""
    return [span for batch in batches for span in spans_in(batch.spans)]


def attributes_of(attributes: Iterable[Any]) -> dict[str, AttributeValue]:
    """Attributes as a dict."""
    return {pair.key: getattr(pair.value, pair.value.WhichOneof("value")) for pair in attributes}


def gauge_batch(name: str, values: Iterable[tuple[float, float]], **attributes: AttributeValue) -> Batch:
    """A batch with the points of a gauge: times in ms since START, and values."""
    named = key_values(dotted(attributes))
    points = [
        NumberDataPoint(time_unix_nano=START + round(at * MS), as_double=value, attributes=named)
        for at, value in values
    ]
    return Batch(metrics=data(gauge(name, *points), resource={"host.name": "node"}))


def points_without_value(name: str, at: float, **attributes: AttributeValue) -> Batch:
    """A batch with a staleness point of a gauge, `at` ms since START."""
    batch = gauge_batch(name, [(at, 0.0)], **attributes)
    point = batch.edit_metrics().resource_metrics[0].scope_metrics[0].metrics[0].gauge.data_points[0]
    point.ClearField("as_double")
    point.flags = DataPointFlags.DATA_POINT_FLAGS_NO_RECORDED_VALUE_MASK
    return batch


def interval_of(span: Span) -> ThreadInterval | None:
    """The interval of a span; None if its kind is unknown or its times are impossible."""
    intervals = read_spans([span]).intervals
    return intervals[0] if intervals else None
