"""Explicit bounds hold HDR counters without loss."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from otel_zernel_libraries.histograms.hdr import Floats, HdrLayout, Ints, hdr_buckets, integers_below
from otel_zernel_libraries.histograms.resolution import LARGEST

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
