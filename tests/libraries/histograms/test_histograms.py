"""The numpy counters give the same results as the package hdrhistogram."""

import numpy as np
import pytest
from hdrh.histogram import HdrHistogram
from hypothesis import given
from hypothesis import strategies as st

from otel_zernel_libraries.histograms.hdr import HdrLayout
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
