"""The metrics of a message, and the ends of series that are missing from it."""

from collections.abc import Iterator, Mapping
from typing import Any, Final, NamedTuple

from opentelemetry.proto.metrics.v1.metrics_pb2 import DataPointFlags, Metric, MetricsData
from opentelemetry.proto.resource.v1.resource_pb2 import Resource

from otel_zernel import __version__
from otel_zernel.batch import Batch
from otel_zernel.otlp.points import AttributeValue, Descriptor, key_values
from otel_zernel_libraries.training import semconv
from otel_zernel_receivers.zernel.declared import (
    COLLECTIVE_DURATION,
    DATALOADER_WAIT,
    LAST_UPDATE,
    LAUNCH_LATENCY,
    MEMORY_PEAK,
    MEMORY_USED,
)
from otel_zernel_receivers.zernel.message import FeedMessage

_SCOPE: Final = "otel_zernel_receivers.zernel"
_NO_VALUE: Final = DataPointFlags.DATA_POINT_FLAGS_NO_RECORDED_VALUE_MASK
_Attributes = tuple[tuple[str, AttributeValue], ...]
_ALL_REDUCE: Final[_Attributes] = ((semconv.NCCL_OPERATION, "all_reduce"),)


class _SeriesKey(NamedTuple):
    descriptor: Descriptor
    attributes: _Attributes = ()


class _LatencyField(NamedTuple):
    series: _SeriesKey
    quantile: float
    unit: float
    """Seconds."""


_LATENCIES: Final[Mapping[str, _LatencyField]] = {
    "cuda_latency_p50_us": _LatencyField(_SeriesKey(LAUNCH_LATENCY), 0.5, 1e6),
    "cuda_latency_p99_us": _LatencyField(_SeriesKey(LAUNCH_LATENCY), 0.99, 1e6),
    "nccl_allreduce_p50_ms": _LatencyField(_SeriesKey(COLLECTIVE_DURATION, _ALL_REDUCE), 0.5, 1e3),
    "nccl_allreduce_p99_ms": _LatencyField(_SeriesKey(COLLECTIVE_DURATION, _ALL_REDUCE), 0.99, 1e3),
    "dataloader_wait_p50_ms": _LatencyField(_SeriesKey(DATALOADER_WAIT), 0.5, 1e3),
}
_Numbers = dict[_SeriesKey, float]
_Summaries = dict[_SeriesKey, dict[float, float]]


class FeedSeries:
    """The series of one feed."""

    def __init__(self, resource: Mapping[str, AttributeValue]) -> None:
        self._resource = resource
        self._open: dict[_SeriesKey, None] = {}
        """The series that downstream has."""
        self._next: dict[_SeriesKey, None] = {}

    def batch(self, message: FeedMessage, time_ns: int) -> Batch:
        """The points of the message, and the ends of the series that it does not have."""
        numbers, summaries = dict(_numbers(message)), _summaries(message)
        self._next = dict.fromkeys([*numbers, *summaries])
        return self._encoded(numbers, summaries, time_ns)

    def ends(self, time_ns: int) -> Batch:
        """The ends of all series."""
        self._next = {}
        return self._encoded({}, {}, time_ns)

    def accepted(self) -> None:
        """Downstream has accepted the last batch. If not, the next one has the same ends again."""
        self._open = self._next

    def _encoded(self, numbers: _Numbers, summaries: _Summaries, time_ns: int) -> Batch:
        metrics = MetricsData()
        of_resource = metrics.resource_metrics.add(resource=Resource(attributes=key_values(self._resource)))
        scope = of_resource.scope_metrics.add()
        scope.scope.name, scope.scope.version = _SCOPE, __version__
        known: dict[Descriptor, Metric] = {}
        for key in {**self._open, **self._next}:
            metric = known.get(key.descriptor) or known.setdefault(key.descriptor, _metric(scope, key.descriptor))
            point = _point(metric, key, time_ns)
            if key in numbers:
                _set_number(point, numbers[key])
            elif key in summaries:
                for quantile, value in summaries[key].items():
                    point.quantile_values.add(quantile=quantile, value=value)
            else:
                point.flags = _NO_VALUE
        return Batch(metrics) if known else Batch()


def _numbers(message: FeedMessage) -> Iterator[tuple[_SeriesKey, float]]:
    for (pid, gpu), (used, peak) in message.memory.items():
        index: AttributeValue = int(gpu) if gpu.isdecimal() and len(gpu) < 10 else gpu
        attributes: _Attributes = (("process.pid", pid), (semconv.GPU_INDEX, index))
        yield _SeriesKey(MEMORY_USED, attributes), used
        yield _SeriesKey(MEMORY_PEAK, attributes), peak
    if message.last_update_ms:
        yield _SeriesKey(LAST_UPDATE), message.last_update_ms / 1e3


def _summaries(message: FeedMessage) -> _Summaries:
    summaries: _Summaries = {}
    for name, value in message.latencies.items():
        of = _LATENCIES[name]
        summaries.setdefault(of.series, {})[of.quantile] = value / of.unit
    return summaries


def _metric(scope: Any, of: Descriptor) -> Metric:
    metric: Metric = scope.metrics.add(name=of.name, unit=of.unit, description=of.description)
    return metric


def _point(metric: Metric, key: _SeriesKey, time_ns: int) -> Any:
    data = metric.summary if key.descriptor.kind == "summary" else metric.gauge
    return data.data_points.add(attributes=key_values(dict(key.attributes)), time_unix_nano=time_ns)


def _set_number(point: Any, value: float) -> None:
    if isinstance(value, int):
        point.as_int = value
    else:
        point.as_double = value
