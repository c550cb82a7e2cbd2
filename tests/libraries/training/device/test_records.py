"""The busy time of a device by its records."""

from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from otel_zernel_libraries.training.device import Segment
from otel_zernel_libraries.training.device.records import DeviceRecords
from otel_zernel_libraries.training.ledger import Position

MS = 1_000_000
EPOCH = 1_700_000_000 * 10**9
PARTS, WINDOW = 64, 64 * MS


def segments(*bounds: int) -> list[Segment]:
    """Segments that follow each other, at these ms."""
    return [Segment(EPOCH + a * MS, EPOCH + b * MS, Position.FORWARD) for a, b in pairwise(bounds)]


def recorded(kernels: list[tuple[int, int]], until: int) -> DeviceRecords:
    """The records of kernels that ran in these ms, in windows of 64 ms up to a time."""
    busy = np.zeros(until + PARTS)
    for begin, end in kernels:
        busy[begin:end] = 1.0
    records = DeviceRecords()
    for window in range(0, until, PARTS):
        parts = (255 * busy[window : window + PARTS]).astype(np.uint8).tobytes()
        records.add(EPOCH + window * MS, EPOCH + window * MS + WINDOW, parts)
    return records


@given(
    kernels=st.lists(st.tuples(st.integers(0, 400), st.integers(1, 90)).map(lambda at: (at[0], at[0] + at[1]))),
    cuts=st.lists(st.integers(1, 499), unique=True, max_size=20).map(sorted),
)
def test_the_idle_time_of_each_segment_is_that_without_a_kernel(
    kernels: list[tuple[int, int]], cuts: list[int]
) -> None:
    bounds = [0, *cuts, 500]
    busy = np.zeros(500, bool)
    for begin, end in kernels:
        busy[begin:end] = True
    idle = recorded(kernels, 512).idle(segments(*bounds))
    assert idle == pytest.approx([(~busy[a:b]).sum() / 1000 for a, b in pairwise(bounds)], abs=1e-6)


def test_windows_without_a_record_are_idle() -> None:
    records = DeviceRecords()
    for window in (0, 10):
        records.add(EPOCH + window * WINDOW, EPOCH + (window + 1) * WINDOW, b"\xff" * PARTS)
    assert records.covers(segments(0, 704))
    assert records.idle(segments(0, 64, 640, 704)) == pytest.approx([0.0, 0.576, 0.0])


def test_one_window_may_come_in_pieces_and_late() -> None:
    records = DeviceRecords()
    half, rest = b"\xff" * 32 + bytes(32), bytes(32) + b"\xff" * 32
    records.add(EPOCH + WINDOW, EPOCH + 2 * WINDOW, half)
    records.add(EPOCH, EPOCH + WINDOW, half)
    records.add(EPOCH, EPOCH + WINDOW, rest)
    assert records.idle(segments(0, 64, 128)) == pytest.approx([0.0, 0.032])


def test_only_what_lies_between_records_is_known() -> None:
    records = recorded([(0, 500)], 512)
    assert records.covers(segments(0, 512))
    assert not records.covers(segments(0, 513))
    assert not records.covers(segments(-1, 512))
    assert not DeviceRecords().covers(segments(0, 1))


def test_what_is_forgotten_is_not_known_and_the_rest_stays() -> None:
    records = recorded([(0, 300)], 512)
    records.forget(EPOCH + 200 * MS)
    assert not records.covers(segments(100, 400))
    assert records.idle(segments(200, 300, 400)) == pytest.approx([0.0, 0.1])


def test_no_more_records_are_kept_than_there_is_room_for() -> None:
    records = DeviceRecords()
    for window in range(20_001):
        records.add(EPOCH + window * WINDOW, EPOCH + (window + 1) * WINDOW, b"\xff")
    assert not records.covers(segments(0, 64))
    assert records.covers(segments(15_000 * 64, 20_000 * 64))
