"""Histogram points: protobuf reads the same numbers that were encoded."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from opentelemetry.proto.metrics.v1.metrics_pb2 import (
    AggregationTemporality,
    Histogram,
    HistogramDataPoint,
    Metric,
    ScopeMetrics,
)

from otel_zernel.otlp.points import (
    HISTOGRAM_ATTRIBUTES,
    Attributes,
    Descriptor,
    Period,
    Temporality,
    encode_attributes,
    encode_metric,
    key_values,
)
from otel_zernel_libraries.histograms.hdr import (
    encode_buckets,
    encode_histogram_point,
)

TIMES = st.integers(0, 2**64 - 1)
NUMBERS = st.floats(allow_nan=False)
EXTREMES = st.none() | NUMBERS
BUCKETS = st.lists(NUMBERS, max_size=200).flatmap(
    lambda bounds: st.tuples(
        st.just(bounds), st.lists(st.integers(0, 2**62), min_size=len(bounds) + 1, max_size=len(bounds) + 1)
    )
)
ATTRIBUTES: Attributes = {"process.pid": 7, "zernel.phase": "forward"}


@given(BUCKETS, TIMES, TIMES, st.integers(0, 2**64 - 1), NUMBERS, EXTREMES, EXTREMES)
def test_a_histogram_point_encodes_as_protobuf_does(
    buckets: tuple[list[float], list[int]],
    start: int,
    end: int,
    count: int,
    total: float,
    lowest: float | None,
    highest: float | None,
) -> None:
    bounds, counts = buckets
    encoded = encode_histogram_point(
        encode_attributes(ATTRIBUTES, HISTOGRAM_ATTRIBUTES),
        Period(start, end),
        encode_buckets(np.array(bounds, np.float64), np.array(counts, np.int64)),
        count,
        total,
        lowest=lowest,
        highest=highest,
    )
    [point] = Histogram.FromString(encoded).data_points
    assert point == HistogramDataPoint(
        attributes=key_values(ATTRIBUTES),
        start_time_unix_nano=start,
        time_unix_nano=end,
        count=count,
        sum=total,
        bucket_counts=counts,
        explicit_bounds=bounds,
        min=lowest,
        max=highest,
    )


@pytest.mark.parametrize(
    ("temporality", "expected"),
    [
        ("delta", AggregationTemporality.AGGREGATION_TEMPORALITY_DELTA),
        ("cumulative", AggregationTemporality.AGGREGATION_TEMPORALITY_CUMULATIVE),
    ],
)
def test_a_histogram_has_the_temporality_of_its_descriptor(
    temporality: Temporality, expected: AggregationTemporality.ValueType
) -> None:
    point = encode_histogram_point(b"", Period(1, 2), b"", 3, 4.5)
    metric = encode_metric(Descriptor("m", "s", "histogram", "d", temporality), point)
    assert ScopeMetrics.FromString(metric).metrics[0] == Metric(
        name="m",
        unit="s",
        description="d",
        histogram=Histogram(
            aggregation_temporality=expected,
            data_points=[HistogramDataPoint(start_time_unix_nano=1, time_unix_nano=2, count=3, sum=4.5)],
        ),
    )
