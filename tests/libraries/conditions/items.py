"""Items to evaluate conditions on."""

from typing import Any

from opentelemetry.proto.common.v1.common_pb2 import InstrumentationScope, KeyValue
from opentelemetry.proto.logs.v1.logs_pb2 import LogRecord
from opentelemetry.proto.metrics.v1.metrics_pb2 import HistogramDataPoint, Metric, NumberDataPoint
from opentelemetry.proto.resource.v1.resource_pb2 import Resource
from opentelemetry.proto.trace.v1.trace_pb2 import Span, Status

from otel_zernel_libraries.conditions import Item, to_any_value


def attributes(**values: Any) -> list[KeyValue]:
    """The attributes; a double underscore in a name is a dot."""
    return [KeyValue(key=key.replace("__", "."), value=to_any_value(value)) for key, value in values.items()]


def item() -> Item:
    """One item of every kind, with values of all types."""
    metric = Metric(name="hw.power", unit="W", description="Power.")
    metric.sum.is_monotonic = True
    metric.sum.aggregation_temporality = 2  # type: ignore[assignment]  # the stubs want the enum
    point = NumberDataPoint(
        as_double=250.5, time_unix_nano=7, attributes=attributes(hw__id="gpu-0", n=3, on=True, list=["a"])
    )
    metric.sum.data_points.append(point)
    span = Span(
        name="forward",
        kind=Span.SPAN_KIND_CLIENT,
        trace_id=bytes(range(16)),
        span_id=bytes(range(8)),
        status=Status(code=Status.STATUS_CODE_ERROR, message="out of memory"),
        attributes=attributes(step=12, loss=0.5, tags=["a", "b"], nested={"deep": {"x": 1}}),
    )
    event = span.events.add(name="oom", attributes=attributes(bytes=b"\x01\x02"))
    log = LogRecord(severity_number=13, severity_text="WARN", attributes=attributes(file="train.py"))  # type: ignore[arg-type]  # as above
    log.body.string_value = "loss is nan"
    return Item(
        resource=Resource(attributes=attributes(host__name="node-1", service__name="trainer", gpus=8)),
        scope=InstrumentationScope(name="nvml", version="1.2"),
        metric=metric,
        point=point,
        span=span,
        event=event,
        log=log,
    )


def histogram_item(count: int) -> Item:
    """An item at a histogram point."""
    return Item(metric=Metric(name="h"), point=HistogramDataPoint(count=count, sum=1.5))
