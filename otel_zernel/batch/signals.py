"""The three signals of OTLP, and the message type of each."""

from collections.abc import Mapping
from typing import Final, Literal

from opentelemetry.proto.logs.v1.logs_pb2 import LogsData
from opentelemetry.proto.metrics.v1.metrics_pb2 import MetricsData
from opentelemetry.proto.trace.v1.trace_pb2 import TracesData

Signal = Literal["metrics", "traces", "logs"]
SIGNALS: Final[tuple[Signal, ...]] = ("metrics", "traces", "logs")
"""In the order in which a batch is exported."""
ALL_SIGNALS: Final[frozenset[Signal]] = frozenset(SIGNALS)

SignalData = MetricsData | TracesData | LogsData
MESSAGE_TYPES: Mapping[Signal, type[SignalData]] = {"metrics": MetricsData, "traces": TracesData, "logs": LogsData}
"""Each has the same encoding as the export request of its signal."""
