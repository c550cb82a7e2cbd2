"""A conversion under test, and points of one metric."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from opentelemetry.proto.metrics.v1.metrics_pb2 import Metric

from otel_zernel.batch import Batch, points
from otel_zernel.testing import Dropped, FakeClock
from otel_zernel_libraries.histograms.temporality import Conversion, SeriesMemoryConfig, ToCumulative, ToDelta
from tests.core.parts import metrics_of
from tests.otlp import data

DELTA, CUMULATIVE = 1, 2
START = 1_700_000_000
"""The time of the fake clock in s. Times of points are seconds after it."""


def ns(seconds: float) -> int:
    return round((START + seconds) * 1e9)


@dataclass
class RunningConversion:
    """A conversion to cumulative, or to delta, that reports times in seconds after `START`."""

    to: type[ToCumulative] | type[ToDelta] = ToCumulative
    options: dict[str, Any] = field(default_factory=dict)
    clock: FakeClock = field(default_factory=FakeClock)
    dropped: Dropped = field(default_factory=Dropped)

    def __post_init__(self) -> None:
        config = SeriesMemoryConfig.model_validate(self.options)
        self.conversion: Conversion[Any] = self.to(config, self.clock)

    def convert(self, *metrics: Metric) -> list[Metric]:
        """The metrics of the converted batch."""
        batch = Batch.from_bytes(metrics=data(*metrics).SerializeToString())
        assert self.conversion.concerns(batch)
        return metrics_of([self.conversion.convert(batch, self.dropped)])

    def points(self, *metrics: Metric) -> list[Any]:
        """The points of the converted batch."""
        return [point for metric in self.convert(*metrics) for point in points(metric)]

    def sums(self, *given: tuple[float, float, float], temporality: int | None = None) -> list[tuple[float, ...]]:
        """Converts points (start, time, value) of one sum to such points."""
        wanted = self.to.source if temporality is None else temporality
        found = self.points(sum_of(given, temporality=wanted))
        return [(*interval(point), point.as_double or point.as_int) for point in found]


def interval(point: Any) -> tuple[float, float]:
    """The start and the time of a point, in seconds after `START`."""
    start, time = (at / 1e9 - START for at in (point.start_time_unix_nano, point.time_unix_nano))
    return round(start, 6), round(time, 6)


def sum_of(
    given: Sequence[tuple[float, float, float]], *, temporality: int = DELTA, monotonic: bool = True, **attributes: str
) -> Metric:
    """A sum with points (start, time, value) of one series. Whole values are integers."""
    metric = Metric(name="requests", unit="1")
    metric.sum.aggregation_temporality = temporality  # type: ignore[assignment]  # an enum's number
    metric.sum.is_monotonic = monotonic
    for start, time, value in given:
        point = metric.sum.data_points.add(start_time_unix_nano=ns(start), time_unix_nano=ns(time))
        if isinstance(value, int):
            point.as_int = value
        else:
            point.as_double = value
        for key, text in attributes.items():
            point.attributes.add(key=key).value.string_value = text
    return metric


def explicit(start: float, time: float, bounds: Sequence[float], counts: Sequence[int], **fields: float) -> Metric:
    """A delta histogram with one point."""
    metric = Metric(name="latency", unit="s")
    metric.histogram.aggregation_temporality = DELTA  # type: ignore[assignment]  # an enum's number
    metric.histogram.data_points.add(
        start_time_unix_nano=ns(start),
        time_unix_nano=ns(time),
        count=sum(counts),
        explicit_bounds=bounds,
        bucket_counts=counts,
        **fields,  # sum, min and max  # sum, min and max
    )
    return metric


def exponential(
    start: float, time: float, scale: int, offset: int, counts: Sequence[int], *, zeros: int = 0, threshold: float = 0.0
) -> Metric:
    """A delta exponential histogram with one point of positive values."""
    metric = Metric(name="latency", unit="s")
    metric.exponential_histogram.aggregation_temporality = DELTA  # type: ignore[assignment]  # an enum's number
    point = metric.exponential_histogram.data_points.add(
        start_time_unix_nano=ns(start),
        time_unix_nano=ns(time),
        count=sum(counts) + zeros,
        scale=scale,
        zero_count=zeros,
        zero_threshold=threshold,
    )
    point.positive.offset = offset
    point.positive.bucket_counts.extend(counts)
    return metric


def as_cumulative(metric: Metric) -> Metric:
    """The same metric, declared as cumulative."""
    getattr(metric, metric.WhichOneof("data") or "").aggregation_temporality = CUMULATIVE
    return metric
