"""The readings of 8 GPUs, as exponential histograms, and their exact quantiles."""

import math
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property

import numpy as np
from numpy.typing import NDArray
from opentelemetry.proto.metrics.v1.metrics_pb2 import (
    AggregationTemporality,
    ExponentialHistogram,
    ExponentialHistogramDataPoint,
    Metric,
    MetricsData,
)

from otel_zernel.otlp.points import key_values
from tests.otlp import NOW, SECOND, data

METRIC, FAMILY = "zernel.step.duration", "zernel_step_duration_seconds"
TEMPORALITIES = {
    "cumulative": AggregationTemporality.AGGREGATION_TEMPORALITY_CUMULATIVE,
    "delta": AggregationTemporality.AGGREGATION_TEMPORALITY_DELTA,
}
Values = NDArray[np.float64]


@dataclass(frozen=True)
class Gpus:
    """Values in seconds for each GPU. Each GPU has its own median and spread, so its histogram has its own scale."""

    seed: int
    count: int = 8

    @cached_property
    def values(self) -> list[Values]:
        """1,000 values for each GPU. The 85th percentile of all is 0.089 s."""
        random = np.random.default_rng(self.seed)
        drawn = [
            random.lognormal(
                math.log(random.choice([0.02, 0.03, 0.05, 0.07])), random.choice([0.05, 0.2, 0.35, 0.5]), 1000
            )
            for _ in range(self.count)
        ]
        factor = 0.089 / float(np.quantile(np.concatenate(drawn), 0.85))
        return [factor * values for values in drawn]

    def quantile(self, quantile: float) -> float:
        """The exact quantile of all values."""
        return float(np.quantile(np.concatenate(self.values), quantile))

    def parts(self, parts: int, temporality: str) -> Iterator[MetricsData]:
        """An empty histogram of each GPU, and then the values in equal parts, a message for each part."""
        for part in range(parts + 1):
            first = 0 if temporality == "cumulative" or part == 0 else 1000 * (part - 1) // parts
            yield self._message([values[first : 1000 * part // parts] for values in self.values], part, temporality)

    def _message(self, values: list[Values], part: int, temporality: str) -> MetricsData:
        points = [point(its, NOW + (part + 1) * SECOND, f"GPU-{gpu}") for gpu, its in enumerate(values)]
        histogram = ExponentialHistogram(data_points=points, aggregation_temporality=TEMPORALITIES[temporality])
        resource = {"service.name": "llm", "service.instance.id": "node-1"}
        return data(Metric(name=METRIC, unit="s", exponential_histogram=histogram), resource=resource)


def point(values: Values, time: int, gpu: str) -> ExponentialHistogramDataPoint:
    """The histogram of the values, with at most 160 buckets."""
    scale, indexes = _indexes(values)
    offset = int(indexes.min()) if len(values) else 0
    counts: list[int] = np.bincount(indexes - offset).tolist()
    return ExponentialHistogramDataPoint(
        attributes=key_values({"hw.id": gpu}),
        start_time_unix_nano=NOW,
        time_unix_nano=time,
        scale=scale,
        count=len(values),
        sum=float(values.sum()),
        positive=ExponentialHistogramDataPoint.Buckets(offset=offset, bucket_counts=counts),
    )


def _indexes(values: Values) -> tuple[int, NDArray[np.int64]]:
    """The finest scale that needs at most 160 buckets, and the bucket of each value there."""
    for scale in range(20, -11, -1):
        indexes = np.ceil(np.log2(values) * 2.0**scale).astype(np.int64) - 1
        if not len(values) or indexes.max() - indexes.min() < 160:
            return scale, indexes
    raise ValueError("the values are too far apart")
