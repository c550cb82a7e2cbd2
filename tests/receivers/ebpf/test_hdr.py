"""The histograms' layout is HdrHistogram's, and their bounds say so exactly."""

import numpy as np
import pytest
from hdrh.histogram import HdrHistogram
from hypothesis import given
from hypothesis import strategies as st

from otel_zernel_receivers.ebpf.hdr import HIGHEST_NS, Layout
from otel_zernel_receivers.ebpf.otlp import buckets
from otel_zernel_receivers.ebpf.rows import Process
from otel_zernel_receivers.ebpf.series import SeriesReading

EVERY_DIGITS = pytest.mark.parametrize("figures", [2, 3])
indexes = st.sets(st.integers(0, Layout(2).length - 1), min_size=1, max_size=40).map(sorted)


def reading(index: list[int], counts: list[int]) -> SeriesReading:
    return SeriesReading(Process(0, 1, 1), 1, 0, np.array(index), np.array(counts), 0, None, 0)


@EVERY_DIGITS
def test_the_layout_is_that_of_hdrhistogram(figures: int) -> None:
    layout, theirs = Layout(figures), HdrHistogram(1, HIGHEST_NS, figures)
    index = np.unique(np.geomspace(1, layout.length - 1, 500).astype(np.int64))
    lowest, highest = layout.ranges(index)
    assert layout.length == theirs.counts_len
    assert lowest.tolist() == [theirs.get_value_from_index(int(one)) for one in index]
    assert highest.tolist() == [theirs.get_highest_equivalent_value(int(one)) for one in lowest]


@given(indexes, st.data())
def test_every_count_can_be_found_again_from_the_bounds(index: list[int], data: st.DataObject) -> None:
    counts = data.draw(st.lists(st.integers(1, 2**32), min_size=len(index), max_size=len(index)))
    layout = Layout(2)
    bounds, in_bucket = buckets(reading(index, counts), layout)
    assert (np.diff(bounds) > 0).all()
    assert in_bucket.sum() == sum(counts)
    lowest, highest = layout.ranges(np.array(index))
    places = np.searchsorted(bounds, highest / 1e9)
    assert in_bucket[places].tolist() == counts
    assert np.rint(bounds[places] * 1e9).astype(np.int64).tolist() == highest.tolist()
    below = np.rint(np.append(bounds, np.nan)[places - 1] * 1e9)
    assert all(low == 0 or int(before) + 1 == low for low, before in zip(lowest, below, strict=True) if low)


def test_only_what_was_counted_has_buckets() -> None:
    bounds, counts = buckets(reading([300, 4000], [5, 7]), Layout(2))
    assert len(bounds) == 4
    assert counts.tolist() == [0, 5, 0, 7, 0]
