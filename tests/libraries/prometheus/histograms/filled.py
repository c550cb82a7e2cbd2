"""Exponential histograms of given values, as the data model of OpenTelemetry defines them."""

import math

from hypothesis import strategies as st

from otel_zernel_libraries.prometheus.histograms.exponential import ExponentialBuckets

VALUES = st.lists(st.floats(-1e6, 1e6).filter(lambda value: value == 0 or abs(value) > 1e-6), max_size=40)
SCALES = st.integers(-4, 10)


def filled(values: list[float], scale: int) -> ExponentialBuckets:
    """The buckets of the values."""
    histogram = ExponentialBuckets(scale)
    for value in values:
        if value == 0:
            histogram.zero_count += 1
            continue
        side = histogram.positive if value > 0 else histogram.negative
        index = math.ceil(math.log2(abs(value)) * 2**scale) - 1
        side[index] = side.get(index, 0) + 1
    return histogram


def width(scale: int) -> float:
    """The ratio of a bucket's edges, with a margin for the rounding of logarithms."""
    return float(2.0 ** (2.0**-scale)) * (1 + 1e-9)
