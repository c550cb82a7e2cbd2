"""The place in a message at which a condition is evaluated."""

from dataclasses import dataclass, field
from typing import Any

from opentelemetry.proto.common.v1.common_pb2 import InstrumentationScope
from opentelemetry.proto.logs.v1.logs_pb2 import LogRecord
from opentelemetry.proto.metrics.v1.metrics_pb2 import Metric, NumberDataPoint
from opentelemetry.proto.resource.v1.resource_pb2 import Resource
from opentelemetry.proto.trace.v1.trace_pb2 import Span


@dataclass(slots=True)
class Item:
    """A data point, span, event or log record, and the messages around it.

    One item serves for a whole batch: a loop sets the fields that change. Fields of other signals stay empty.
    """

    resource: Resource = field(default_factory=Resource)
    scope: InstrumentationScope = field(default_factory=InstrumentationScope)
    metric: Metric = field(default_factory=Metric)
    point: Any = field(default_factory=NumberDataPoint)
    """A data point of any of the five types."""
    span: Span = field(default_factory=Span)
    event: Span.Event = field(default_factory=Span.Event)
    log: LogRecord = field(default_factory=LogRecord)
