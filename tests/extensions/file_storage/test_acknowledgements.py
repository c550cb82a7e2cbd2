"""The log of finished records: it forgets nothing by itself, and every damage makes records appear again at worst."""

from itertools import pairwise
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from otel_zernel_extensions.file_storage.disk import Disk
from otel_zernel_extensions.file_storage.journal.acknowledgements import FILE_NAME, Acknowledged, AcknowledgementLog
from otel_zernel_extensions.file_storage.journal.ranges import count, merged, without

RANGES = st.lists(st.tuples(st.integers(1, 60), st.integers(0, 9)).map(lambda one: (one[0], one[0] + one[1])))


def members(ranges: list[tuple[int, int]]) -> set[int]:
    return {sequence for first, last in ranges for sequence in range(first, last + 1)}


@pytest.fixture
def log(tmp_path: Path) -> AcknowledgementLog:
    log = AcknowledgementLog(tmp_path, Disk())
    log.start([], 0)
    return log


def test_a_log_that_has_grown_is_written_anew_and_says_the_same(log: AcknowledgementLog, tmp_path: Path) -> None:
    for round_ in range(60):
        log.add([(n, n) for n in range(round_ * 2000 + 1, round_ * 2000 + 2001, 2)], round_ * 2000 + 2000)
        log.add([(n, n) for n in range(round_ * 2000 + 2, round_ * 2000 + 2002, 2)], round_ * 2000 + 2000)
    before = Acknowledged.read(tmp_path)
    assert before == Acknowledged([(1, 120_000)], 120_000, complete=True)
    assert log.should_rewrite
    log.rewrite(before.finished, before.last)
    assert not log.should_rewrite
    log.add([(120_001, 120_001)], 120_001)
    log.close()
    assert Acknowledged.read(tmp_path) == Acknowledged([(1, 120_001)], 120_001, complete=True)
    assert (tmp_path / FILE_NAME).stat().st_size == 5 * 20


def test_every_flipped_byte_forgets_one_entry_at_most(log: AcknowledgementLog, tmp_path: Path) -> None:
    for sequence in (1, 5, 9):
        log.add([(sequence, sequence)], 10)
    log.close()
    whole = (tmp_path / FILE_NAME).read_bytes()
    intact = Acknowledged.decode(whole)
    for at in range(len(whole)):
        flipped = bytearray(whole)
        flipped[at] ^= 0x40
        decode = Acknowledged.decode(bytes(flipped))
        assert not decode.complete, at
        assert set(decode.finished) <= set(intact.finished)
        assert len(decode.finished) >= len(intact.finished) - 1
        assert decode.last == 10


def test_a_log_cut_anywhere_keeps_the_entries_before_the_cut(log: AcknowledgementLog, tmp_path: Path) -> None:
    log.add([(1, 1)], 1)
    log.add([(3, 3)], 3)
    log.close()
    whole = (tmp_path / FILE_NAME).read_bytes()
    for length in range(len(whole)):
        decode = Acknowledged.decode(whole[:length])
        assert members(decode.finished) <= {1, 3}
        assert decode.complete == (length >= 20 and length % 20 == 0)


def test_a_log_without_its_begin_is_not_taken_for_a_newer_format(log: AcknowledgementLog, tmp_path: Path) -> None:
    log.add([(0x1234, 0x5678)], 0x5678)
    log.close()
    whole = (tmp_path / FILE_NAME).read_bytes()
    assert not Acknowledged.decode(whole[40:]).complete
    assert not Acknowledged.decode(whole[20:]).complete


@given(RANGES)
def test_merged_ranges_have_the_same_sequences_and_do_not_touch(ranges: list[tuple[int, int]]) -> None:
    result = merged(ranges)
    assert members(result) == members(ranges)
    assert count(result) == len(members(ranges))
    assert all(one[1] + 1 < other[0] for one, other in pairwise(result))


@given(st.integers(1, 40), st.integers(0, 40), RANGES)
def test_what_is_left_without_ranges(first: int, length: int, ranges: list[tuple[int, int]]) -> None:
    whole = (first, first + length)
    left = list(without(whole, ranges))
    assert members(left) == members([whole]) - members(ranges)
    assert left == merged(left)
