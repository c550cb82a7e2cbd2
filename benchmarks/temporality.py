"""Deltas to cumulative sums and histograms: the rate, and the memory for a series."""

import tracemalloc
from collections.abc import Callable
from functools import partial
from typing import Any

from opentelemetry.proto.metrics.v1.metrics_pb2 import Metric, MetricsData

from benchmarks import BenchmarkRow, seconds
from otel_zernel.batch import Batch
from otel_zernel.testing import Dropped, FakeClock
from otel_zernel_libraries.histograms.temporality import SeriesMemoryConfig, ToCumulative

SERIES, ATTRIBUTES = 1000, 8
SECOND = 10**9


def run() -> list[BenchmarkRow]:
    """Sums, histograms with 15 bounds, and exponential histograms with 160 buckets, all with eight attributes."""
    made = (("sums", _sum), ("histograms", _explicit), ("exponential histograms", _exponential))
    return [row for name, make in made for row in _rows(name, make)]


def _rows(name: str, make: Callable[[int], Metric]) -> list[BenchmarkRow]:
    conversion = ToCumulative(SeriesMemoryConfig(), FakeClock())
    batches = [_batch(make(step)) for step in range(4)]
    tracemalloc.start()
    before, _ = tracemalloc.get_traced_memory()
    conversion.convert(batches[0], Dropped())
    del batches[0]
    held = tracemalloc.get_traced_memory()[0] - before
    tracemalloc.stop()
    spent = [seconds(partial(conversion.convert, batch, Dropped())) for batch in batches]
    return [
        BenchmarkRow(f"delta to cumulative, {name}", f"{min(spent) / SERIES * 1e6:.1f} us a point"),
        BenchmarkRow(f"  {name}: memory", f"{held / SERIES / 1e3:.2f} kB a series"),
    ]


def _batch(metric: Metric) -> Batch:
    data = MetricsData()
    data.resource_metrics.add().scope_metrics.add().metrics.append(metric)
    return Batch.from_bytes(metrics=data.SerializeToString())


def _sum(step: int) -> Metric:
    metric = Metric(name="requests")
    metric.sum.aggregation_temporality, metric.sum.is_monotonic = 1, True  # type: ignore[assignment]  # an enum's number
    for series in range(SERIES):
        _identify(metric.sum.data_points.add(as_int=series + step), series, step)
    return metric


def _explicit(step: int) -> Metric:
    metric = Metric(name="latency")
    metric.histogram.aggregation_temporality = 1  # type: ignore[assignment]  # an enum's number
    for series in range(SERIES):
        counts, bounds = [series + step] * 16, [float(bound) for bound in range(15)]
        point = metric.histogram.data_points.add(count=sum(counts), bucket_counts=counts, explicit_bounds=bounds, sum=9)
        _identify(point, series, step)
    return metric


def _exponential(step: int) -> Metric:
    metric = Metric(name="duration")
    metric.exponential_histogram.aggregation_temporality = 1  # type: ignore[assignment]  # an enum's number
    for series in range(SERIES):
        point = metric.exponential_histogram.data_points.add(count=160 * (series + step), scale=4, sum=9)
        point.positive.bucket_counts.extend([series + step] * 160)
        _identify(point, series, step)
    return metric


def _identify(point: Any, series: int, step: int) -> None:
    point.start_time_unix_nano, point.time_unix_nano = (10**9 + step) * SECOND, (10**9 + step + 1) * SECOND
    for number in range(ATTRIBUTES):
        point.attributes.add(key=f"attribute.name.{number}").value.string_value = f"value-{series}-{number}"
