"""The numpy counters give the same results as the package hdrhistogram.

Explicit bounds hold HDR counters without loss.

Histogram points: protobuf reads the same numbers that were encoded.
"""

import numpy as np
import pytest
from hdrh.histogram import HdrHistogram
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
    Floats,
    HdrLayout,
    Ints,
    encode_buckets,
    encode_histogram_point,
    hdr_buckets,
    integers_below,
)
from otel_zernel_libraries.histograms.resolution import LARGEST

HOUR_NS = 3_600_000_000_000
LAYOUTS = [(10_000, 1), (10**9, 2), (HOUR_NS, 2), (HOUR_NS, 3), (2**40, 4)]

ranged_values = st.integers(0, 42).flatmap(lambda bits: st.integers(0, min(2**bits, HOUR_NS)))


@pytest.mark.parametrize(("highest", "figures"), LAYOUTS)
def test_the_layout_equals_hdrhistogram_at_and_around_every_power_of_two(highest: int, figures: int) -> None:
    theirs, ours = HdrHistogram(1, highest, figures), HdrLayout(highest, figures)
    values = [v for bit in range(63) for v in (2**bit - 1, 2**bit, 2**bit + 1) if v <= highest] + [highest]
    index = ours.index(values)
    assert ours.length == theirs.counts_len
    assert index.tolist() == [theirs._counts_index_for(value) for value in values]
    assert ours.lowest(index).tolist() == [theirs.get_lowest_equivalent_value(value) for value in values]
    assert ours.highest_equivalent(index).tolist() == [theirs.get_highest_equivalent_value(value) for value in values]


@pytest.mark.parametrize("figures", [1, 2, 3, 4, 5])
def test_every_value_lies_between_the_limits_of_its_counter(figures: int) -> None:
    layout = HdrLayout(significant_figures=figures)
    values = np.array([v for bit in range(63) for v in (2**bit - 1, 2**bit, 2**bit + 1) if v <= LARGEST])
    index = layout.index(values)
    low, high = layout.lowest(index), layout.highest_equivalent(index)
    assert (low <= values).all()
    assert (values <= high).all()
    assert (high - low <= values * 10.0**-figures).all()
    assert index.max() < layout.length


@given(
    st.lists(ranged_values, min_size=1, max_size=60),
    st.lists(st.floats(0, 100), min_size=1, max_size=8),
    st.sampled_from([1, 2]),
)
def test_percentiles_equal_get_value_at_percentile(values: list[int], percentiles: list[float], figures: int) -> None:
    theirs, ours = HdrHistogram(1, HOUR_NS, figures), HdrLayout(HOUR_NS, figures)
    for value in values:
        theirs.record_value(value)
    counts = ours.count(values)
    assert counts.tolist() == list(theirs.counts)
    expected = [theirs.get_value_at_percentile(percentile) for percentile in percentiles]
    assert ours.percentiles(counts, percentiles).tolist() == expected


def test_percentiles_of_an_empty_histogram_are_zero_as_in_hdrhistogram() -> None:
    assert HdrLayout().percentiles([], [50, 100]).tolist() == [0, 0]
    assert HdrLayout().percentiles([0, 0], [0, 99]).tolist() == [0, 0]


HIGHEST_NS = 3_600_000_000_000  # an hour
LAYOUT = HdrLayout(HIGHEST_NS, 2)
indexes = st.sets(st.integers(0, LAYOUT.length - 1), min_size=1, max_size=40).map(sorted)


def buckets(*counted: dict[int, int]) -> list[tuple[Floats, Ints]]:
    """The buckets, in seconds, of histograms given as counts by counter."""
    counts = [np.array(list(one.values())) for one in counted]
    return [*hdr_buckets(LAYOUT, [np.array(list(one)) for one in counted], counts, 1e9)]


@given(st.lists(indexes, min_size=1, max_size=4), st.data())
def test_the_bounds_identify_the_counter_of_every_count(series: list[list[int]], data: st.DataObject) -> None:
    counted = [data.draw(st.lists(st.integers(1, 2**32), min_size=len(index), max_size=len(index))) for index in series]
    found = buckets(*(dict(zip(*one, strict=True)) for one in zip(series, counted, strict=True)))
    for index, counts, (bounds, in_bucket) in zip(series, counted, found, strict=True):
        assert (np.diff(bounds) > 0).all()
        assert len(in_bucket) == len(bounds) + 1
        assert in_bucket.sum() == sum(counts)
        lowest, highest = LAYOUT.lowest(index), LAYOUT.highest_equivalent(index)
        places = np.searchsorted(bounds, highest / 1e9)
        assert in_bucket[places].tolist() == counts
        assert np.rint(bounds[places] * 1e9).astype(np.int64).tolist() == highest.tolist()
        below = np.rint(np.append(bounds, np.nan)[places - 1] * 1e9)
        assert all(low == 0 or int(before) + 1 == low for low, before in zip(lowest, below, strict=True) if low)


@given(indexes)
def test_the_integers_below_the_bounds_are_the_limits_of_the_counters(index: list[int]) -> None:
    [(bounds, counts)] = buckets(dict.fromkeys(index, 1))
    integers = integers_below(bounds, 1e9).astype(np.int64)
    first, last = np.append(-1, integers)[:-1] + 1, integers
    used = np.flatnonzero(counts)
    assert first[used].tolist() == LAYOUT.lowest(index).tolist()
    assert last[used].tolist() == LAYOUT.highest_equivalent(index).tolist()


@given(st.integers(0, 2**48), st.sampled_from([1, 1e2, 1e3, 1e6, 1e9]))
def test_a_bound_converts_back_to_its_integer(integer: int, per_unit: float) -> None:
    assert integers_below(np.array([integer / per_unit]), per_unit).tolist() == [integer]


def test_a_bound_between_integers_rounds_down_and_an_infinite_one_stays_infinite() -> None:
    assert integers_below(np.array([-np.inf, 1.0005, np.inf]), 1e3).tolist() == [-np.inf, 1000, np.inf]


@given(st.integers(0, LARGEST), st.integers(1, 5))
def test_the_functions_for_single_values_agree_with_those_for_arrays(value: int, figures: int) -> None:
    layout = HdrLayout(significant_figures=figures)
    index = layout.index(value)
    assert layout.index_of(value) == index
    assert layout.limits_of(value) == (int(layout.lowest(index)), int(layout.highest_equivalent(index)))


def test_only_used_counters_have_buckets() -> None:
    [(bounds, counts)] = buckets({300: 5, 4000: 7})
    assert len(bounds) == 4
    assert counts.tolist() == [0, 5, 0, 7, 0]


def test_histograms_computed_together_share_no_bucket() -> None:
    """The second begins where the first one ends, and the third at the lowest counter."""
    found = buckets({300: 5}, {301: 6, 302: 7}, {0: 8, 1: 9})
    assert [counts.tolist() for _, counts in found] == [[0, 5, 0], [0, 6, 7, 0], [8, 9, 0]]


def test_at_least_one_histogram_is_needed() -> None:
    with pytest.raises(ValueError, match="concatenate"):
        buckets()


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
