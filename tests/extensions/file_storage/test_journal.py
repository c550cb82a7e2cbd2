"""The promises of a journal on a healthy disk.

Reading a journal while a collector writes it.
"""

import asyncio
import resource
from pathlib import Path
from zlib import crc32

import pytest

from otel_zernel.clock import SystemClock
from otel_zernel.storage import DataLost, StorageFailed, TooLarge
from otel_zernel.testing import FakeClock, until
from otel_zernel_extensions.file_storage.disk import Disk
from otel_zernel_extensions.file_storage.journal.acknowledgements import Acknowledged, AcknowledgementLog
from otel_zernel_extensions.file_storage.journal.journal import FileJournal
from otel_zernel_extensions.file_storage.journal.layout import (
    MARKER_SIZE,
    RECORD_HEADER_SIZE,
    SEGMENT_HEADER_SIZE,
    UnknownVersion,
)
from otel_zernel_extensions.file_storage.journal.limits import JournalLimits
from otel_zernel_extensions.file_storage.journal.recovery import recover
from tests.extensions.file_storage.parts import FailingDisk, contents, opened, segments

SMALL = JournalLimits(segment_size=1000)


async def test_a_record_describes_its_batch_and_gives_its_data_back(tmp_path: Path) -> None:
    clock = FakeClock()
    journal = await FileJournal.open(tmp_path / "q", clock)
    record = await journal.append("traces", b"some spans", 7)
    assert (record.sequence, record.signal, record.items, record.size) == (1, "traces", 7, 10)
    assert record.time_ns == clock.time_ns()
    assert journal.read(record) == b"some spans"
    await journal.close()


async def test_records_are_there_again_after_a_restart_oldest_first(tmp_path: Path) -> None:
    async with opened(tmp_path / "q") as journal:
        written = [await journal.append("metrics", bytes([n]) * n, n) for n in range(20)]
        assert list(journal.records()) == []  # only those that were there at the opening
    async with opened(tmp_path / "q") as journal:
        assert list(journal.records()) == written
        assert contents(journal) == [bytes([n]) * n for n in range(20)]
        assert journal.damage == ()


async def test_a_removed_record_never_comes_back(tmp_path: Path) -> None:
    async with opened(tmp_path / "q") as journal:
        records = [await journal.append("logs", b"%d" % n, 1) for n in range(6)]
        for record in records[::2]:
            journal.remove(record)
            journal.remove(record)  # without effect
    async with opened(tmp_path / "q") as journal:
        assert contents(journal) == [b"1", b"3", b"5"]
        journal.remove(next(journal.records()))
        assert contents(journal) == [b"3", b"5"]
    async with opened(tmp_path / "q") as journal:
        assert contents(journal) == [b"3", b"5"]


async def test_a_sequence_is_never_used_twice(tmp_path: Path) -> None:
    sequences = []
    for _ in range(5):
        async with opened(tmp_path / "q") as journal:
            record = await journal.append("metrics", b"x", 1)
            sequences.append(record.sequence)
            journal.remove(record)
    assert sequences == [1, 2, 3, 4, 5]


async def test_an_empty_journal_leaves_no_segment_behind(tmp_path: Path) -> None:
    async with opened(tmp_path / "q") as journal:
        journal.remove(await journal.append("metrics", b"x", 1))
    assert segments(tmp_path / "q") == []


async def test_concurrent_appends_share_syncs_and_keep_their_order(tmp_path: Path) -> None:
    disk = FailingDisk()
    async with opened(tmp_path / "q", disk=disk) as journal:
        before = disk.calls["sync"]
        records = await asyncio.gather(*(journal.append("metrics", b"%d" % n, 1) for n in range(200)))
        assert [record.sequence for record in records] == list(range(1, 201))
        assert disk.calls["sync"] - before < 100
    async with opened(tmp_path / "q") as journal:
        assert contents(journal) == [b"%d" % n for n in range(200)]


async def test_without_fsync_no_append_waits_for_the_disk(tmp_path: Path) -> None:
    disk = FailingDisk()
    async with opened(tmp_path / "q", JournalLimits(fsync=False), disk) as journal:
        await journal.append("metrics", b"first", 1)
        before = disk.calls["sync"]
        await journal.append("metrics", b"second", 1)
        assert disk.calls["sync"] == before
    async with opened(tmp_path / "q") as journal:
        assert contents(journal) == [b"first", b"second"]


async def test_a_name_that_is_taken_is_left_out(tmp_path: Path) -> None:
    (tmp_path / "q" / "00000000000000000001.segment").mkdir(parents=True)
    async with opened(tmp_path / "q") as journal:
        assert (await journal.append("metrics", b"x", 1)).sequence == 2
    async with opened(tmp_path / "q") as journal:
        assert contents(journal) == [b"x"]
        assert journal.damage == ()


async def test_a_record_that_is_changed_while_the_journal_is_open_is_lost_for_good(tmp_path: Path) -> None:
    async with opened(tmp_path / "q") as journal:
        record = await journal.append("metrics", b"0123456789", 1)
        (path,) = segments(tmp_path / "q")
        path.write_bytes(path.read_bytes().replace(b"5", b"6"))
        with pytest.raises(DataLost, match=r"was changed on the disk at byte 172"):
            journal.read(record)


async def test_too_many_open_files_are_no_loss(tmp_path: Path) -> None:
    async with opened(tmp_path / "q") as journal:
        record = await journal.append("metrics", b"0123456789", 1)
        soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
        resource.setrlimit(resource.RLIMIT_NOFILE, (3, hard))
        try:
            with pytest.raises(StorageFailed, match="Too many open files") as failed:
                journal.read(record)
        finally:
            resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
        assert not isinstance(failed.value, DataLost)
        assert journal.read(record) == b"0123456789"


async def test_a_cancelled_append_leaves_nothing(tmp_path: Path) -> None:
    async with opened(tmp_path / "q") as journal:
        cancelled = asyncio.ensure_future(journal.append("metrics", b"cancelled", 1))
        kept = journal.append("metrics", b"kept", 1)
        cancelled.cancel()
        await kept
    async with opened(tmp_path / "q") as journal:
        assert contents(journal) == [b"kept"]


async def test_a_segment_is_deleted_when_all_its_records_are_removed_whichever_it_is(tmp_path: Path) -> None:
    async with opened(tmp_path / "q", SMALL) as journal:
        records = [await journal.append("metrics", bytes(300), 1) for _ in range(10)]
        assert len(segments(tmp_path / "q")) == 5  # two records in each
        for record in records[2:6]:
            journal.remove(record)
        await until(lambda: len(segments(tmp_path / "q")) == 3)
    async with opened(tmp_path / "q", SMALL) as journal:
        assert [record.sequence for record in journal.records()] == [1, 2, 7, 8, 9, 10]
        assert journal.damage == ()


async def test_a_record_larger_than_a_segment_is_stored(tmp_path: Path) -> None:
    async with opened(tmp_path / "q", SMALL) as journal:
        for size in (10, 5000, 10, 3_000_000):
            await journal.append("metrics", bytes(size), 1)
    async with opened(tmp_path / "q", SMALL) as journal:
        assert [len(data) for data in contents(journal)] == [10, 5000, 10, 3_000_000]


async def test_max_size_refuses_until_records_are_removed(tmp_path: Path) -> None:
    async with opened(tmp_path / "q", JournalLimits(max_size=10_000)) as journal:
        stored = [await journal.append("metrics", bytes(1000), 1) for _ in range(9)]
        with pytest.raises(StorageFailed, match="has reached its max_size of 10000 bytes"):
            await journal.append("metrics", bytes(1000), 1)
        assert journal.problem is not None
        assert sum(path.stat().st_size for path in segments(tmp_path / "q")) <= 10_000
        for record in stored:
            assert journal.read(record) == bytes(1000)
            journal.remove(record)
        await until(lambda: journal.problem is None)
        await journal.append("metrics", bytes(1000), 1)


async def test_a_batch_that_can_never_fit_is_too_large_and_no_problem_of_the_disk(tmp_path: Path) -> None:
    async with opened(tmp_path / "q", JournalLimits(max_size=10_000)) as journal:
        with pytest.raises(TooLarge, match="a batch of 20044 bytes is larger than the storage allows"):
            await journal.append("metrics", bytes(20_000), 1)
        assert journal.problem is None


async def test_the_first_append_after_closing_is_refused_and_closing_twice_is_safe(tmp_path: Path) -> None:
    journal = await FileJournal.open(tmp_path / "q", SystemClock())
    waiting = journal.append("metrics", b"accepted before", 1)
    await journal.close()
    await journal.close()
    assert (await waiting).sequence == 1
    with pytest.raises(StorageFailed, match="closed"):
        await journal.append("metrics", b"x", 1)


async def test_a_newer_format_is_refused_and_left_alone(tmp_path: Path) -> None:
    async with opened(tmp_path / "q") as journal:
        await journal.append("metrics", b"x", 1)
    (path,) = segments(tmp_path / "q")
    newer = bytearray(path.read_bytes())
    newer[8] = 2  # the version, and the checksum after the 28 bytes of fields
    newer[28:32] = crc32(newer[:28]).to_bytes(4, "little")
    path.write_bytes(newer)
    with pytest.raises(UnknownVersion, match="has version 2 of the format; this release reads 1"):
        await FileJournal.open(tmp_path / "q", SystemClock())
    assert path.read_bytes() == newer


class BusyDisk(Disk):
    """A disk on which, at the first read, a collector finishes and deletes the second segment."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder

    def read(self, file: int, length: int, start: int) -> bytes:
        if len(segments(self._folder)) == 3:
            first, second, third = (int(path.stem) for path in segments(self._folder))
            log = AcknowledgementLog(self._folder, Disk())
            log.add([(second, third - 1)], Acknowledged.read(self._folder).last)
            log.close()
            segments(self._folder)[1].unlink()
            assert first == 1
        return super().read(file, length, start)


async def test_a_segment_that_is_delivered_meanwhile_is_no_loss(tmp_path: Path) -> None:
    async with opened(tmp_path / "q", JournalLimits(segment_size=1000)) as journal:
        for _ in range(6):
            await journal.append("metrics", bytes(300), 1)
    found = recover(tmp_path / "q", BusyDisk(tmp_path / "q"))
    assert [record.sequence for record in found.records] == [1, 2, 5, 6]
    assert found.damage == ()


async def test_lost_items_are_those_of_the_headers_and_at_least_one_for_each_damaged_header(tmp_path: Path) -> None:
    async with opened(tmp_path / "q", JournalLimits(segment_size=10_000)) as journal:
        for _ in range(6):
            await journal.append("metrics", bytes(300), 20)
    (segment,) = segments(tmp_path / "q")
    content = bytearray(segment.read_bytes())
    record = RECORD_HEADER_SIZE + 300
    for number in (1, 2):  # their data
        content[SEGMENT_HEADER_SIZE + number * record + RECORD_HEADER_SIZE] ^= 1
    segment.write_bytes(content)
    (damage,) = recover(tmp_path / "q", Disk()).damage
    assert str(damage) == f"lost 2 stored batches with 40 items: {segment.name} was changed on the disk"
    content[SEGMENT_HEADER_SIZE + 4 * record + MARKER_SIZE] ^= 1  # the header of another one
    segment.write_bytes(content)
    (damage,) = recover(tmp_path / "q", Disk()).damage
    assert str(damage) == f"lost 3 stored batches with at least 41 items: {segment.name} was changed on the disk"
