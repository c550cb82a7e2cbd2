"""The number of items in OTLP messages: metric data points, spans, log records and samples of profiles."""

from typing import NamedTuple, assert_never

from opentelemetry.proto.logs.v1.logs_pb2 import LogsData
from opentelemetry.proto.metrics.v1.metrics_pb2 import Metric, MetricsData
from opentelemetry.proto.profiles.v1development.profiles_pb2 import ProfilesData
from opentelemetry.proto.trace.v1.trace_pb2 import TracesData

from otel_zernel.batch.signals import SignalData
from otel_zernel.batch.thin import ADDABLE, EXPLICIT_HISTOGRAMS


def count_points(metrics: MetricsData) -> int:
    """The number of data points in a message."""
    return sum(
        len(points(metric))
        for resource in metrics.resource_metrics
        for scope in resource.scope_metrics
        for metric in scope.metrics
    )


def temporalities_of(metrics: MetricsData) -> frozenset[int]:
    """The aggregation temporalities of the sums and histograms in a message."""
    found: set[int] = set()
    for resource in metrics.resource_metrics:
        for scope in resource.scope_metrics:
            for metric in scope.metrics:
                kind = metric.WhichOneof("data") or ""
                if kind in ADDABLE:
                    found.add(getattr(metric, kind).aggregation_temporality)
                if kind == "histogram":
                    found.add(EXPLICIT_HISTOGRAMS)
    return frozenset(found)


def count_spans(traces: TracesData) -> int:
    """The number of spans in a message."""
    return sum(len(scope.spans) for resource in traces.resource_spans for scope in resource.scope_spans)


def count_log_records(logs: LogsData) -> int:
    """The number of log records in a message."""
    return sum(len(scope.log_records) for resource in logs.resource_logs for scope in resource.scope_logs)


def count_samples(profiles: ProfilesData) -> int:
    """The number of samples in a message."""
    return sum(
        len(profile.samples)
        for resource in profiles.resource_profiles
        for scope in resource.scope_profiles
        for profile in scope.profiles
    )


def count_items(message: SignalData) -> int:
    """The number of items in a message of any signal."""
    match message:
        case MetricsData():
            return count_points(message)
        case TracesData():
            return count_spans(message)
        case LogsData():
            return count_log_records(message)
        case ProfilesData():
            return count_samples(message)
        case _:
            assert_never(message)


def points(metric: Metric):  # type: ignore[no-untyped-def]  # five repeated fields without a common type
    """The data points of a metric of any type. An empty tuple if the metric has no data."""
    data_type = metric.WhichOneof("data")
    return getattr(metric, data_type).data_points if data_type else ()


class ItemCount(NamedTuple):
    """The number of items of each signal, in one batch or in many."""

    points: int = 0
    spans: int = 0
    log_records: int = 0
    samples: int = 0

    def plus(self, other: "ItemCount") -> "ItemCount":
        """The counts of both together. (`+` joins tuples.)"""
        return ItemCount(self[0] + other[0], self[1] + other[1], self[2] + other[2], self[3] + other[3])

    def minus(self, other: "ItemCount") -> "ItemCount":
        """The counts without those of a part."""
        return ItemCount(self[0] - other[0], self[1] - other[1], self[2] - other[2], self[3] - other[3])

    @property
    def total(self) -> int:
        return sum(self)

    @property
    def verb(self) -> str:
        """The form of `to be` in a sentence about the items."""
        return "is" if self.total == 1 else "are"

    def __str__(self) -> str:
        """`3 metric points and 1 span`; signals without items are left out."""
        units = ("metric point", "span", "log record", "profile sample")
        named = zip(self, units, strict=True)
        parts = [f"{count:,} {unit}{'' if count == 1 else 's'}" for count, unit in named if count] or ["0 items"]
        return ", ".join(parts[:-1]) + (" and " if parts[:-1] else "") + parts[-1]
