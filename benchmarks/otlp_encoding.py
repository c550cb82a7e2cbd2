"""Encoding a scrape of 1,000 known series with 8 attributes each, compared with two ways by protobuf's own classes."""

from collections.abc import Callable
from functools import partial

import numpy as np
from numpy.typing import NDArray
from opentelemetry.proto.metrics.v1.metrics_pb2 import MetricsData

from benchmarks import BenchmarkRow, seconds
from otel_zernel.otlp.points import Descriptor, Scope, Series, encode_point_attributes, encode_resource, key_values
from otel_zernel_libraries.arrays import KnownSeries

POINTS = 1000
TIME_NS = 1_700_000_000_000_000_000
SCOPE = Scope("benchmark", "1")
RESOURCE = {"host.name": "node-1", "service.name": "training"}
GAUGE = Descriptor("hw.gpu.utilization", "1")

Encode = Callable[[NDArray[np.float64]], bytes]


ATTRIBUTES = [{f"attribute.{n}": f"value-{n}-{index}" for n in range(8)} for index in range(POINTS)]


def known_series() -> Encode:
    """The way of a scraper: `KnownSeries`."""
    resource = encode_resource(RESOURCE)
    points = map(encode_point_attributes, ATTRIBUTES)
    series = KnownSeries([Series(resource, SCOPE, GAUGE, point) for point in points])
    return lambda values: series.encode(values, TIME_NS)


def built_anew(values: NDArray[np.float64]) -> bytes:
    """New protobuf messages for every scrape."""
    return message(values).SerializeToString()


def message(values: NDArray[np.float64]) -> MetricsData:
    data = MetricsData()
    resource = data.resource_metrics.add()
    resource.resource.attributes.extend(key_values(RESOURCE))
    scope = resource.scope_metrics.add()
    scope.scope.name, scope.scope.version = SCOPE.name, SCOPE.version
    metric = scope.metrics.add(name=GAUGE.name, unit=GAUGE.unit)
    for attributes, value in zip(ATTRIBUTES, values.tolist(), strict=True):
        point = metric.gauge.data_points.add()
        point.time_unix_nano, point.as_double = TIME_NS, value
        for key, text in attributes.items():
            pair = point.attributes.add()
            pair.key, pair.value.string_value = key, text
    return data


def updated_in_place() -> Encode:
    """One protobuf message, in which every scrape sets times and values."""
    data = message(np.zeros(POINTS))
    points = list(data.resource_metrics[0].scope_metrics[0].metrics[0].gauge.data_points)

    def encode(values: NDArray[np.float64]) -> bytes:
        for point, value in zip(points, values.tolist(), strict=True):
            point.time_unix_nano, point.as_double = TIME_NS, value
        return data.SerializeToString()

    return encode


def microseconds_a_point(encode: Encode, values: NDArray[np.float64], repeats: int) -> float:
    """The median of `repeats` scrapes."""
    taken = [seconds(partial(encode, values)) for _ in range(repeats)]
    return float(np.median(taken)) / POINTS * 1e6


def run() -> list[BenchmarkRow]:
    """Raises `AssertionError` if the three ways encode different points."""
    values = np.random.default_rng(1).random(POINTS)
    ours, kept = known_series(), updated_in_place()
    same = {MetricsData.FromString(encode(values)).SerializeToString(deterministic=True) for encode in (ours, kept)}
    assert same == {message(values).SerializeToString(deterministic=True)}
    cost = microseconds_a_point(ours, values, 200)
    others = {
        "  protobuf, new messages": microseconds_a_point(built_anew, values, 10),
        "  protobuf, one message updated in place": microseconds_a_point(kept, values, 50),
    }
    return [
        BenchmarkRow("OTLP encoding of 1,000 known series", f"{cost:.3f} us/point", "at most 1 us/point", cost <= 1),
        *(BenchmarkRow(name, f"{other:.2f} us/point, {other / cost:.0f} times ours") for name, other in others.items()),
    ]
