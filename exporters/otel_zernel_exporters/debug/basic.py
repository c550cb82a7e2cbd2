"""Counts of a batch: one line for each signal, as in the OpenTelemetry Collector."""

from collections.abc import Iterator

from opentelemetry.proto.logs.v1.logs_pb2 import LogsData
from opentelemetry.proto.metrics.v1.metrics_pb2 import MetricsData
from opentelemetry.proto.profiles.v1development.profiles_pb2 import ProfilesData
from opentelemetry.proto.trace.v1.trace_pb2 import TracesData

from otel_zernel.batch import count_items


def render_metrics(metrics: MetricsData) -> Iterator[str]:
    """`Metrics {"resource metrics": 1, "metrics": 10, "data points": 100}`"""
    resources = metrics.resource_metrics
    count = sum(len(scope.metrics) for resource in resources for scope in resource.scope_metrics)
    yield (
        f'Metrics {{"resource metrics": {len(resources)}, "metrics": {count}, "data points": {count_items(metrics)}}}'
    )


def render_spans(traces: TracesData) -> Iterator[str]:
    """`Traces {"resource spans": 1, "spans": 10}`"""
    yield f'Traces {{"resource spans": {len(traces.resource_spans)}, "spans": {count_items(traces)}}}'


def render_logs(logs: LogsData) -> Iterator[str]:
    """`Logs {"resource logs": 1, "log records": 10}`"""
    yield f'Logs {{"resource logs": {len(logs.resource_logs)}, "log records": {count_items(logs)}}}'


def render_profiles(profiles: ProfilesData) -> Iterator[str]:
    """`Profiles {"resource profiles": 1, "sample records": 10}`"""
    count = count_items(profiles)
    yield f'Profiles {{"resource profiles": {len(profiles.resource_profiles)}, "sample records": {count}}}'
