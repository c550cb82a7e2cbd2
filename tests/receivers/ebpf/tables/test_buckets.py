"""The counters of a histogram can be computed exactly from the bounds of its buckets."""

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from otel_zernel.otlp.histograms import Layout
from otel_zernel_receivers.ebpf.emit.encoding import buckets
from otel_zernel_receivers.ebpf.kernel.kernel_structs import HIGHEST_NS
from otel_zernel_receivers.ebpf.tables.process_table import WatchedProcess
from otel_zernel_receivers.ebpf.tables.series import SeriesReading

LAYOUT = Layout(HIGHEST_NS, 2)
indexes = st.sets(st.integers(0, LAYOUT.length - 1), min_size=1, max_size=40).map(sorted)


def reading(index: list[int], counts: list[int]) -> SeriesReading:
    return SeriesReading(WatchedProcess(0, 1, 1), 1, 0, np.array(index), np.array(counts), 0, None, 0)


@given(st.lists(indexes, min_size=1, max_size=4), st.data())
def test_every_count_can_be_computed_from_the_bounds(series: list[list[int]], data: st.DataObject) -> None:
    counted = [data.draw(st.lists(st.integers(1, 2**32), min_size=len(index), max_size=len(index))) for index in series]
    found = [*buckets(list(map(reading, series, counted)), LAYOUT)]
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


def test_only_used_counters_have_buckets() -> None:
    [(bounds, counts)] = buckets([reading([300, 4000], [5, 7])], LAYOUT)
    assert len(bounds) == 4
    assert counts.tolist() == [0, 5, 0, 7, 0]


def test_series_of_one_reading_share_no_bucket() -> None:
    """The second series begins at the end of the first one, and the third at the lowest counter."""
    found = buckets([reading([300], [5]), reading([301, 302], [6, 7]), reading([0, 1], [8, 9])], LAYOUT)
    assert [counts.tolist() for _, counts in found] == [[0, 5, 0], [0, 6, 7, 0], [8, 9, 0]]
