"""A disk that fails: nothing that was accepted is lost, nothing that was refused is stored."""

import asyncio
import errno
from pathlib import Path

import pytest

from otel_zernel.storage import StorageFailed
from otel_zernel.testing import until
from tests.extensions.file_storage.parts import FailingDisk, contents, opened, segments


@pytest.fixture
def disk() -> FailingDisk:
    return FailingDisk()


async def test_a_full_disk_refuses_and_leaves_nothing_of_the_batch(tmp_path: Path, disk: FailingDisk) -> None:
    async with opened(tmp_path / "q", disk=disk) as journal:
        await journal.append("metrics", b"before", 1)
        size = segments(tmp_path / "q")[0].stat().st_size
        disk.errors["write"] = [errno.ENOSPC]
        with pytest.raises(StorageFailed, match=r"cannot write to .*: No space left on device"):
            await journal.append("metrics", b"refused", 1)
        assert segments(tmp_path / "q")[0].stat().st_size == size
        assert "No space left" in (journal.problem or "")
        await journal.append("metrics", b"after", 1)
        assert journal.problem is None
    async with opened(tmp_path / "q") as journal:
        assert contents(journal) == [b"before", b"after"]
        assert journal.damage == ()


async def test_a_full_disk_refuses_only_the_batches_that_do_not_fit(tmp_path: Path, disk: FailingDisk) -> None:
    async with opened(tmp_path / "q", disk=disk) as journal:
        await journal.append("metrics", b"first", 1)
        disk.errors["write"] = [errno.ENOSPC, 0, 0, errno.ENOSPC]  # the group; then one, its note, and another
        results = await asyncio.gather(
            *(journal.append("metrics", b"%d" % n, 1) for n in range(3)), return_exceptions=True
        )
        refused = {n for n, result in enumerate(results) if isinstance(result, StorageFailed)}
        assert 0 < len(refused) < 3
    async with opened(tmp_path / "q") as journal:
        assert contents(journal) == [b"first", *(b"%d" % n for n in range(3) if n not in refused)]


async def test_a_full_disk_makes_room_by_deleting_a_segment_without_records(tmp_path: Path, disk: FailingDisk) -> None:
    async with opened(tmp_path / "q", disk=disk) as journal:
        journal.remove(await journal.append("metrics", bytes(10_000), 1))
        (old,) = segments(tmp_path / "q")
        await until(lambda: disk.calls["write"] > 4)  # the removal is noted
        disk.errors["write"] = [errno.ENOSPC]
        await journal.append("metrics", b"fits now", 1)
        assert not old.exists()


async def test_a_failed_sync_is_final_for_its_file(tmp_path: Path, disk: FailingDisk) -> None:
    async with opened(tmp_path / "q", disk=disk) as journal:
        await journal.append("metrics", b"before", 1)
        (first,) = segments(tmp_path / "q")
        size = first.stat().st_size
        disk.errors["sync"] = [errno.EIO]
        record = await journal.append("metrics", b"after", 1)
        assert len(segments(tmp_path / "q")) == 2
        assert first.stat().st_size == size
        assert journal.read(record) == b"after"
        assert journal.problem is None
    async with opened(tmp_path / "q") as journal:
        assert contents(journal) == [b"before", b"after"]
        assert journal.damage == ()


async def test_records_of_a_failed_sync_never_appear_although_they_cannot_be_cut(
    tmp_path: Path, disk: FailingDisk
) -> None:
    async with opened(tmp_path / "q", disk=disk) as journal:
        await journal.append("metrics", b"before", 1)
        disk.errors |= {"sync": [errno.EIO, 0, errno.EIO, errno.EIO, errno.EIO], "truncate": [errno.EIO] * 5}
        with pytest.raises(StorageFailed, match="Input/output error"):
            await journal.append("metrics", b"refused", 1)
    async with opened(tmp_path / "q") as journal:
        assert contents(journal) == [b"before"]
        assert journal.damage == ()


async def test_removals_that_could_not_be_noted_are_noted_later(tmp_path: Path, disk: FailingDisk) -> None:
    async with opened(tmp_path / "q", disk=disk) as journal:
        records = [await journal.append("metrics", b"%d" % n, 1) for n in range(5)]
        noted = disk.calls["write"]
        disk.errors["write"] = [errno.ENOSPC]
        journal.remove(records[1])
        await until(lambda: disk.calls["write"] > noted)
        journal.remove(records[3])
    async with opened(tmp_path / "q") as journal:
        assert contents(journal) == [b"0", b"2", b"4"]
        assert journal.damage == ()


async def test_a_folder_that_somebody_deletes_is_made_again(tmp_path: Path) -> None:
    async with opened(tmp_path / "q") as journal:
        lost = await journal.append("metrics", b"lost", 1)
        for path in (tmp_path / "q").iterdir():
            path.unlink()
        (tmp_path / "q").rmdir()
        await journal.append("metrics", b"after", 1)
        with pytest.raises(StorageFailed, match=r"cannot read .*: No such file or directory"):
            journal.read(lost)
    async with opened(tmp_path / "q") as journal:
        assert contents(journal) == [b"after"]


async def test_a_sector_that_cannot_be_read_costs_only_its_records(tmp_path: Path, disk: FailingDisk) -> None:
    async with opened(tmp_path / "q") as journal:
        for n in range(100):
            await journal.append("metrics", b"%03d" % n * 1000, 10)
    disk.bad_bytes = range(20_000, 20_001)
    async with opened(tmp_path / "q", disk=disk) as journal:
        (damage,) = journal.damage
        assert len(contents(journal)) == 99
        assert (damage.records, damage.items) == (1, 10)
