"""The signals of OTLP, and the message type of each."""

from collections.abc import Mapping
from typing import Final, Literal

from opentelemetry.proto.logs.v1.logs_pb2 import LogsData
from opentelemetry.proto.metrics.v1.metrics_pb2 import MetricsData
from opentelemetry.proto.profiles.v1development.profiles_pb2 import ProfilesData
from opentelemetry.proto.trace.v1.trace_pb2 import TracesData

Signal = Literal["metrics", "traces", "logs", "profiles"]
STABLE_SIGNALS: Final[tuple[Signal, ...]] = ("metrics", "traces", "logs")
"""The signals whose messages OTLP does not change any more."""
SIGNALS: Final[tuple[Signal, ...]] = (*STABLE_SIGNALS, "profiles")
"""In the order in which a batch is exported. Profiles are `v1development` as in OTLP 1.10, which
is version 1.45 of the Python package opentelemetry-proto."""
ALL_SIGNALS: Final[frozenset[Signal]] = frozenset(SIGNALS)

SignalData = MetricsData | TracesData | LogsData | ProfilesData
MESSAGE_TYPES: Mapping[Signal, type[SignalData]] = {
    "metrics": MetricsData,
    "traces": TracesData,
    "logs": LogsData,
    "profiles": ProfilesData,
}
"""Each has the same encoding as the export request of its signal."""
