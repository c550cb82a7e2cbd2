"""A full or read-only disk refuses new batches, gives back and removes the old ones, and loses none."""

from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import pytest

from otel_zernel.clock import SystemClock
from otel_zernel.storage import Record, StorageFailed
from otel_zernel.testing import make_context, until
from otel_zernel_extensions.file_storage import FileStorageExtension
from otel_zernel_extensions.file_storage.journal.journal import FileJournal
from otel_zernel_extensions.file_storage.journal.limits import JournalLimits
from tests.extensions.file_storage.parts import contents, opened, segments
from tests.reliability.journals.disks import fill, remount, small_disk

LIMITS = JournalLimits(segment_size=200_000)
SIZE = 30_000


@pytest.fixture
def disk(tmp_path: Path) -> Iterator[Path]:
    with small_disk(tmp_path / "disk") as folder:
        yield folder


def data_of(number: int) -> bytes:
    return b"%04d" % number * (SIZE // 4)


async def append_until_full(journal: FileJournal) -> list[Record]:
    stored: list[Record] = []
    with suppress(StorageFailed):
        while True:
            stored.append(await journal.append("metrics", data_of(len(stored)), 1))
    assert "No space left on device" in (journal.problem or "")
    return stored


async def test_a_full_disk_keeps_delivering_and_takes_batches_again(disk: Path) -> None:
    async with opened(disk / "q", LIMITS) as journal:
        stored = await append_until_full(journal)
        assert len(stored) > 50
        files = len(segments(disk / "q"))
        for number, record in enumerate(stored[:20]):
            assert journal.read(record) == data_of(number)
            journal.remove(record)
        await until(lambda: len(segments(disk / "q")) < files)
        await until(lambda: journal.problem is None)
        await journal.append("metrics", b"after", 1)
    async with opened(disk / "q") as journal:
        assert contents(journal) == [*map(data_of, range(20, len(stored))), b"after"]
        assert journal.damage == ()


async def test_a_queue_on_a_disk_that_is_full_opens_and_is_delivered_once(disk: Path) -> None:
    async with opened(disk / "q", LIMITS) as journal:
        for number in range(20):
            await journal.append("metrics", data_of(number), 1)
    fill(disk)
    async with opened(disk / "q", LIMITS) as journal:
        assert contents(journal) == [*map(data_of, range(20))]
        with pytest.raises(StorageFailed, match="No space left on device"):
            await journal.append("metrics", data_of(0), 1)
        for record in list(journal.records())[:15]:
            journal.remove(record)
    async with opened(disk / "q", LIMITS) as journal:
        assert contents(journal) == [*map(data_of, range(15, 20))]
        assert journal.damage == ()


async def test_room_that_another_program_frees_is_used(disk: Path) -> None:
    async with opened(disk / "q", LIMITS) as journal:
        filler = fill(disk)
        with pytest.raises(StorageFailed, match="No space left on device"):
            await journal.append("metrics", data_of(0), 1)
        filler.unlink()
        await until(lambda: journal.problem is None)
        await journal.append("metrics", data_of(0), 1)


async def test_a_read_only_disk_opens_and_delivers(disk: Path) -> None:
    async with opened(disk / "q", LIMITS) as journal:
        for number in range(10):
            await journal.append("metrics", data_of(number), 1)
    remount(disk, "ro")
    async with opened(disk / "q", LIMITS) as journal:
        assert contents(journal) == [*map(data_of, range(10))]
        with pytest.raises(StorageFailed, match="Read-only file system"):
            await journal.append("metrics", data_of(0), 1)
        for record in list(journal.records())[:5]:
            journal.remove(record)
        remount(disk, "rw")
        await until(lambda: journal.problem is None)
        await journal.append("metrics", b"after", 1)
    async with opened(disk / "q") as journal:
        assert contents(journal) == [*map(data_of, range(5, 10)), b"after"]


def storage(directory: Path) -> FileStorageExtension:
    config = FileStorageExtension.Config.model_validate({"directory": str(directory)})
    return FileStorageExtension(config, make_context("extensions", "file_storage", clock=SystemClock()))


@pytest.mark.parametrize("state", ["full", "read-only", "read-only before it was used"])
async def test_the_extension_starts_on_such_a_disk(disk: Path, state: str) -> None:
    if state != "read-only before it was used":
        async with storage(disk) as extension:
            await (await extension.journal("exporters::otlp")).append("metrics", b"x", 1)
            await (await extension.key_values("receivers::csv")).set("key", b"1")
    if state == "full":
        fill(disk)
    else:
        remount(disk, "ro")
    async with storage(disk) as extension:
        journal = await extension.journal("exporters::otlp")
        with pytest.raises(StorageFailed):
            await journal.append("metrics", bytes(100_000), 1)
        values = await extension.key_values("receivers::csv")
        with pytest.raises(StorageFailed):
            await values.set("key", bytes(100_000))
        if state == "read-only before it was used":
            assert (list(journal.records()), await values.get("key")) == ([], None)
        else:
            assert (contents(journal), await values.get("key")) == ([b"x"], b"1")
