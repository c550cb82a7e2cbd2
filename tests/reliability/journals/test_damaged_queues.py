"""A damaged queue always opens: every loss is counted once, and all other records come back in order, exactly once.

The items of a lost record are those of its header. Without a header, it counts as one item at least, and the sentence
says so.
"""

import random
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

from otel_zernel.clock import SystemClock
from otel_zernel.storage import Damage
from otel_zernel_extensions.file_storage.disk import Disk
from otel_zernel_extensions.file_storage.journal.journal import FileJournal
from otel_zernel_extensions.file_storage.journal.layout import RECORD_HEADER_SIZE, SEGMENT_HEADER_SIZE
from otel_zernel_extensions.file_storage.journal.limits import JournalLimits
from otel_zernel_extensions.file_storage.journal.recovery import scan
from tests.extensions.file_storage.parts import segments

LIMITS = JournalLimits(segment_size=2500)
ITEMS = 5
"""Of each record."""


class UnsyncedDisk(Disk):
    """These tests damage files, not the power supply."""

    def sync(self, file: int) -> None:
        return

    def sync_directory(self, directory: Path) -> None:
        return


Content = dict[int, bytes]
"""The data of each record by its sequence, in the order of the journal."""


async def opening(folder: Path) -> tuple[Content, tuple[Damage, ...]]:
    """What a journal finds, and what it misses."""
    journal = await FileJournal.open(folder, SystemClock(), LIMITS, UnsyncedDisk())
    found = [(record.sequence, journal.read(record)) for record in journal.records()]
    await journal.close()
    assert len(dict(found)) == len(found), "a record came back twice"
    assert [sequence for sequence, _ in found] == sorted(sequence for sequence, _ in found)
    return dict(found), journal.damage


def lost(damage: tuple[Damage, ...]) -> int:
    return sum(one.records for one in damage)


@pytest.fixture
async def queue(tmp_path: Path) -> Path:
    """Records 1 to 40 in about 6 segments. One in three is removed, and so are all of the second segment."""
    folder = tmp_path / "queue"
    rng = random.Random(1)
    journal = await FileJournal.open(folder, SystemClock(), LIMITS, UnsyncedDisk())
    records = [await journal.append("metrics", rng.randbytes(rng.randrange(600)), ITEMS) for _ in range(39)]
    records.append(await journal.append("metrics", b"the last of them all", ITEMS))
    second = {header.sequence for header, _ in scan(segments(folder)[1], Disk()).intact}
    for record in records:
        if record.sequence % 3 == 0 or record.sequence in second:
            journal.remove(record)
    await journal.close()
    return folder


async def check(queue: Path, change: Callable[[Path], object], *, may_return: bool = False) -> tuple[Damage, ...]:
    """Damages a copy, and checks every promise. Returns what the first opening reported."""
    copy = queue.with_name("copy")
    shutil.copytree(queue, copy)
    intact, _ = await opening(copy)
    shutil.rmtree(copy)
    shutil.copytree(queue, copy)
    change(copy)
    found, damage = await opening(copy)
    missing = intact.keys() - found.keys()
    if may_return:  # the log of acknowledgements is damaged: removed records may be there again
        assert lost(damage) == len(missing) == 0
        assert damage
    else:
        assert found.keys() <= intact.keys()
        assert lost(damage) == len(missing), (missing, damage)
    unknown, items = sum(one.unknown for one in damage), sum(one.items for one in damage)
    assert items == ITEMS * (lost(damage) - unknown) + unknown
    assert all(("at least" in str(one)) == bool(one.unknown) for one in damage)
    assert all(found[sequence] == data for sequence, data in intact.items() if sequence in found)
    await check_that_it_works_on(copy, found)
    shutil.rmtree(copy)
    return damage


async def check_that_it_works_on(folder: Path, found: Content) -> None:
    journal = await FileJournal.open(folder, SystemClock(), LIMITS, UnsyncedDisk())
    assert lost(journal.damage) == 0, "a loss was counted twice"
    record = await journal.append("logs", b"new", 1)
    assert record.sequence > max(found, default=0)
    await journal.close()
    assert await opening(folder) == ({**found, record.sequence: b"new"}, ())


def flip(path: Path, at: int, bit: int = 0) -> None:
    data = bytearray(path.read_bytes())
    data[at] ^= 1 << bit
    path.write_bytes(data)


def cut(path: Path, length: int) -> None:
    path.write_bytes(path.read_bytes()[:length])


def delete_segments(folder: Path) -> None:
    for path in segments(folder):
        path.unlink()


async def test_200_flipped_bytes_at_every_kind_of_place(queue: Path) -> None:
    rng = random.Random(2)
    places = []
    for path in segments(queue):
        starts = [offset for _, offset in scan(path, Disk()).intact]
        places += [(path.name, at) for at in rng.sample(range(SEGMENT_HEADER_SIZE), 4)]
        places += [(path.name, start - 1 - rng.randrange(RECORD_HEADER_SIZE)) for start in starts]
        places += [(path.name, rng.randrange(SEGMENT_HEADER_SIZE, path.stat().st_size)) for _ in range(24)]
    places += [(places[-1][0], at) for at in range(SEGMENT_HEADER_SIZE, SEGMENT_HEADER_SIZE + RECORD_HEADER_SIZE)]
    assert len(places) >= 200
    for name, at in places:
        await check(queue, lambda folder, name=name, at=at: flip(folder / name, at, at % 8))  # type: ignore[misc]


async def test_a_flipped_byte_in_the_log_of_acknowledgements_loses_nothing(queue: Path) -> None:
    size = (queue / "acknowledgements").stat().st_size
    for at in range(0, size, 7):  # each place of an entry, which has 20 bytes
        await check(queue, lambda folder, at=at: flip(folder / "acknowledgements", at), may_return=True)  # type: ignore[misc]


async def test_a_missing_log_of_acknowledgements_loses_nothing(queue: Path) -> None:
    damage = await check(queue, lambda folder: (folder / "acknowledgements").unlink(), may_return=True)
    assert [one.reason for one in damage] == [
        "the log of acknowledgements is missing: batches that were delivered may be sent again"
    ]


async def test_a_cut_at_every_length_of_the_last_record_is_counted(queue: Path) -> None:
    last = segments(queue)[-1]
    (*_, before, (header, offset)) = scan(last, Disk()).intact
    start = before[1] + before[0].length
    assert header.sequence == 40
    for length in range(start, offset + header.length):
        damage = await check(queue, lambda folder, length=length: cut(folder / last.name, length))  # type: ignore[misc]
        assert lost(damage) == 1


async def test_a_cut_in_the_middle_of_the_queue_is_counted(queue: Path) -> None:
    for path in segments(queue):
        for length in (0, 1, 64, SEGMENT_HEADER_SIZE, 150, 1000, 2000):
            await check(queue, lambda folder, path=path, length=length: cut(folder / path.name, length))  # type: ignore[misc]


async def test_an_unfinished_record_of_a_killed_writer_is_cut_without_a_loss(queue: Path) -> None:
    last = segments(queue)[-1]
    (*_, (header, offset)) = scan(last, Disk()).intact
    another = last.read_bytes()[offset - RECORD_HEADER_SIZE : offset + header.length]
    for length in (1, 8, 43, 44, len(another) - 1):
        path = last.name
        torn = another[:length]

        def append(folder: Path, path: str = path, torn: bytes = torn) -> None:
            with (folder / path).open("ab") as file:
                file.write(torn)

        damage = await check(queue, append)
        assert [one.records for one in damage] == [0]


async def test_every_missing_segment_is_counted(queue: Path) -> None:
    for path in segments(queue):
        damage = await check(queue, lambda folder, path=path: (folder / path.name).unlink())  # type: ignore[misc]
        assert lost(damage) > 0
    damage = await check(queue, delete_segments)
    assert lost(damage) == len((await opening(queue))[0])


async def test_many_changes_at_once_are_counted(queue: Path) -> None:
    for seed in range(30):
        rng = random.Random(seed)

        def change(folder: Path, rng: random.Random = rng) -> None:
            for path in folder.glob("*.segment"):
                data = bytearray(path.read_bytes())
                for _ in range(rng.randrange(4)):
                    at, length = rng.randrange(len(data)), rng.choice((1, 30, 700))
                    data[at : at + length] = rng.choice((bytes(length), rng.randbytes(length), b""))
                path.write_bytes(data)

        await check(queue, change)


async def test_an_unreadable_segment_is_kept_aside(queue: Path) -> None:
    path = segments(queue)[0]
    garbage = random.Random(3).randbytes(2000)
    await check(queue, lambda folder: (folder / path.name).write_bytes(garbage))
    path.write_bytes(garbage)
    await opening(queue)
    assert path.with_suffix(".damaged").read_bytes() == garbage


async def test_records_inside_data_are_never_taken_for_records(queue: Path) -> None:
    """Somebody sends the bytes of a segment as data, and the header of the record that carries them is damaged."""
    journal = await FileJournal.open(queue, SystemClock(), LIMITS)
    forged = segments(queue)[0].read_bytes()
    record = await journal.append("metrics", forged, 1)
    await journal.close()
    last = segments(queue)[-1]
    damage = await check(queue, lambda folder: flip(folder / last.name, SEGMENT_HEADER_SIZE + 8))
    assert lost(damage) == 1
    assert record.sequence == 41


async def test_foreign_files_are_left_alone(queue: Path) -> None:
    def add(folder: Path) -> None:
        (folder / "exporter_otlp_").write_bytes(b"bbolt")
        (folder / "notes.segment").write_text("mine")
        (folder / "00000000000000000002.segment~").write_text("a backup")
        (folder / "00000000000000000777.segment").mkdir()
        (folder / "sub").mkdir()
        shutil.copy(segments(folder)[0], folder / "00000000000000000003.segment")

    await check(queue, add)
    add(queue)
    await opening(queue)
    assert (queue / "notes.segment").read_text() == "mine"
    assert (queue / "exporter_otlp_").read_bytes() == b"bbolt"
    assert (queue / "00000000000000000002.segment~").exists()
