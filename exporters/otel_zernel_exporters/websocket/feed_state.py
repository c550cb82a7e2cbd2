"""What the feed shows, from batches. No I/O."""

import json
from collections.abc import Callable, Iterator, Mapping
from hashlib import blake2b
from typing import Any, Final

from opentelemetry.proto.metrics.v1.metrics_pb2 import AggregationTemporality, Metric, MetricsData, SummaryDataPoint

from otel_zernel.batch import Batch
from otel_zernel.clock import Clock
from otel_zernel.otlp.points import AttributeValue
from otel_zernel.otlp.staleness import has_no_value
from otel_zernel_exporters.websocket.latencies import MergedLatency
from otel_zernel_exporters.websocket.memory import ProcessMemory
from otel_zernel_libraries.histograms.temporality import SeriesMemoryConfig, ToDelta
from otel_zernel_libraries.training import numbers_of, scalars_of

_USED: Final = frozenset({"zernel.cuda.memory.used", "zernel.gpu.memory.used"})
_PEAK: Final = frozenset({"zernel.cuda.memory.peak", "zernel.gpu.memory.peak"})
_LAUNCHES: Final = "zernel.cuda.launch.latency"
_COLLECTIVES: Final = "zernel.nccl.collective.duration"
_WAITS: Final = "zernel.dataloader.wait"
_SUFFIXES: Final = ("", ".distribution", ".percentiles")
"""The endings that the processor `percentiles` gives to its results."""
_OPERATION: Final = "all_reduce"
_LIMITS: Final = SeriesMemoryConfig.model_construct(max_series=20_000, idle_timeout=3600.0)
"""Cumulative series: about 1.5 KB each."""
Resource = Mapping[str, AttributeValue]


class FeedState:
    """Memory by process and GPU, and three distributions of durations, merged over all processes."""

    def __init__(self, clock: Clock, drop: Callable[[int, str], None], expiration: float) -> None:
        self._clock = clock
        self._drop = drop
        self._memory = ProcessMemory(expiration, drop)
        self._latencies = {name: MergedLatency(drop) for name in (_LAUNCHES, _COLLECTIVES, _WAITS)}
        self._by_name = {f"{name}{suffix}": one for name, one in self._latencies.items() for suffix in _SUFFIXES}
        self._to_delta = ToDelta(_LIMITS, clock)
        self._updated_ms = 0

    def adding(self, batch: Batch) -> Iterator[None]:
        """Adds a batch, piece by piece. Leaves the batch unchanged. Raises `DecodeError`."""
        cumulative = MetricsData()
        now = self._clock.monotonic()
        for of_resource in batch.metrics.resource_metrics:
            resource: Resource | None = None
            for of_scope in of_resource.scope_metrics:
                for metric in of_scope.metrics:
                    name = metric.name
                    if name in _USED or name in _PEAK:
                        resource = scalars_of(of_resource.resource.attributes) if resource is None else resource
                        yield from self._add_memory(metric, resource, now)
                    elif name in self._by_name:
                        if _is_cumulative(metric):
                            of = cumulative.resource_metrics.add(resource=of_resource.resource)
                            of.scope_metrics.add(scope=of_scope.scope).metrics.append(metric)
                            yield
                        else:
                            yield from self._add_durations(metric, of_resource.resource.SerializeToString(), now)
        yield from self._add_cumulative(cumulative, now)

    def message(self) -> str:
        """The state as the JSON text that readers get. Latencies without a value in the last minute are 0."""
        now = self._clock.monotonic()
        launches = self._latencies[_LAUNCHES].quantiles(now, 0.5, 0.99)
        collectives = self._latencies[_COLLECTIVES].quantiles(now, 0.5, 0.99)
        (wait,) = self._latencies[_WAITS].quantiles(now, 0.5)
        found: dict[str, Any] = {
            "gpu_utilization": [*self._memory.rendered(now)],
            "cuda_latency_p50_us": _rounded(launches[0] * 1e6),
            "cuda_latency_p99_us": _rounded(launches[1] * 1e6),
            "nccl_allreduce_p50_ms": _rounded(collectives[0] * 1e3),
            "nccl_allreduce_p99_ms": _rounded(collectives[1] * 1e3),
            "dataloader_wait_p50_ms": _rounded(wait * 1e3),
            "last_update_ms": self._updated_ms,
        }
        return json.dumps(found, separators=(",", ":"), allow_nan=False)

    def _add_memory(self, metric: Metric, resource: Resource, now: float) -> Iterator[None]:
        for seen in numbers_of(metric, resource):
            self._memory.add(seen, is_peak=metric.name in _PEAK, now=now)
            self._touch()
            yield

    def _add_cumulative(self, metrics: MetricsData, now: float) -> Iterator[None]:
        """Adds what cumulative histograms have counted since their last points."""
        if not metrics.resource_metrics:
            return
        batch = Batch(metrics)
        for _ in self._to_delta.convert(batch, self._drop):
            yield
        for of_resource in batch.metrics.resource_metrics:
            for metric in (metric for scope in of_resource.scope_metrics for metric in scope.metrics):
                yield from self._add_durations(metric, b"", now)

    def _add_durations(self, metric: Metric, resource: bytes, now: float) -> Iterator[None]:
        latency = self._by_name[metric.name]
        is_collective = latency is self._latencies[_COLLECTIVES]
        histogram = metric.histogram if metric.HasField("histogram") else metric.exponential_histogram
        for point in histogram.data_points:
            if not has_no_value(point) and not (is_collective and _is_other(point.attributes)):
                latency.add(point, now)
                self._touch()
                yield
        for summary in metric.summary.data_points:
            if not (is_collective and _is_other(summary.attributes)):
                _take(latency, summary, _series_of(metric.name, resource, summary), now)
                self._touch()
                yield

    def _touch(self) -> None:
        self._updated_ms = self._clock.time_ns() // 1_000_000


def _take(latency: MergedLatency, summary: SummaryDataPoint, series: bytes, now: float) -> None:
    if has_no_value(summary):
        latency.end(series)
    else:
        latency.replace(series, summary, now)


def _series_of(name: str, resource: bytes, point: SummaryDataPoint) -> bytes:
    attributes = b"".join(sorted(pair.SerializeToString() for pair in point.attributes))
    return blake2b(b"\0".join((name.encode(), resource, attributes)), digest_size=16).digest()


def _is_cumulative(metric: Metric) -> bool:
    kind = metric.WhichOneof("data")
    if kind not in ("histogram", "exponential_histogram"):
        return False
    temporality: int = getattr(metric, kind).aggregation_temporality
    return temporality == AggregationTemporality.AGGREGATION_TEMPORALITY_CUMULATIVE


def _is_other(attributes: Any) -> bool:
    """Whether the point is of another collective operation than all-reduce."""
    return scalars_of(attributes).get("zernel.nccl.operation", _OPERATION) != _OPERATION


def _rounded(value: float) -> float:
    return round(value, 3)
