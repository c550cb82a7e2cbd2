"""A power failure at any system call: every answered batch is there, and no loss is reported that is none.

The disk is simulated: a file has what it had at its last sync, or a part of what was written since. A name exists if
its directory was synced since, or by chance.
"""

import asyncio
import os
import random
from collections.abc import Sequence
from pathlib import Path

import pytest

from otel_zernel.clock import SystemClock
from otel_zernel.storage import Record
from otel_zernel_extensions.file_storage.disk import Disk
from otel_zernel_extensions.file_storage.journal.journal import FileJournal
from otel_zernel_extensions.file_storage.journal.limits import JournalLimits
from tests.extensions.file_storage.parts import contents, opened

LIMITS = JournalLimits(segment_size=3000)


class VolatileDisk(Disk):
    """Remembers what is durable. Its `calls` can be limited: the next one is a power failure."""

    def __init__(self, folder: Path, calls: int) -> None:
        self._folder = folder
        self._calls = calls
        self._synced: dict[int, bytes] = {}
        """The durable content of each file, by its inode."""
        self._names: dict[str, int] = {}
        """The durable names in the folder."""

    @property
    def is_off(self) -> bool:
        return self._calls <= 0

    def _call(self) -> None:
        self._calls -= 1
        if self._calls <= 0:
            raise OSError("the power is off")

    def write(self, file: int, parts: Sequence[bytes], start: int) -> None:
        self._call()
        super().write(file, parts, start)

    def truncate(self, file: int, size: int) -> None:
        self._call()
        super().truncate(file, size)

    def sync(self, file: int) -> None:
        self._call()
        self._synced[os.fstat(file).st_ino] = Path(f"/proc/self/fd/{file}").read_bytes()

    def sync_directory(self, directory: Path) -> None:
        self._call()
        self._names = _names(self._folder)

    def after_the_failure(self, target: Path, rng: random.Random) -> None:
        """Writes a state that the disk may have."""
        target.mkdir()
        now = _names(self._folder)
        names = self._names | {name: inode for name, inode in now.items() if rng.random() < 0.5}
        for name in [name for name in names if name not in now and rng.random() < 0.5]:
            del names[name]
        current = {inode: (self._folder / name).read_bytes() for name, inode in now.items()}
        for name, inode in names.items():
            synced = self._synced.get(inode, b"")
            latest = current.get(inode, synced)
            grown = latest[len(synced) :] if latest.startswith(synced) else b""
            (target / name).write_bytes(synced + grown[: rng.randint(0, len(grown))])


def _names(folder: Path) -> dict[str, int]:
    return {path.name: path.stat().st_ino for path in folder.iterdir()} if folder.exists() else {}


async def run(journal: FileJournal, disk: VolatileDisk, rng: random.Random) -> dict[int, bytes]:
    """Works until the power is off. Returns the answered batches that are not removed."""
    kept: dict[int, tuple[Record, bytes]] = {}
    while not disk.is_off:
        batches = [rng.randbytes(rng.randrange(900)) for _ in range(rng.randint(1, 4))]
        results = await asyncio.gather(
            *(journal.append("metrics", batch, 1) for batch in batches), return_exceptions=True
        )
        for result, data in zip(results, batches, strict=True):
            if isinstance(result, Record):
                kept[result.sequence] = result, data
        for sequence in [one for one in kept if rng.random() < 0.4]:
            journal.remove(kept.pop(sequence)[0])
    return {sequence: data for sequence, (_, data) in kept.items()}


@pytest.mark.parametrize("start", range(5, 125, 4))
async def test_every_answered_batch_survives_a_power_failure(tmp_path: Path, start: int) -> None:
    for calls in range(start, start + 4):
        rng = random.Random(calls)
        folder, later = tmp_path / f"before{calls}", tmp_path / f"after{calls}"
        disk = VolatileDisk(folder, calls)
        journal = await FileJournal.open(folder, SystemClock(), LIMITS, disk)
        kept = await run(journal, disk, rng)
        disk.after_the_failure(later, rng)
        await journal.close()
        async with opened(later, LIMITS) as journal:
            found = {record.sequence: journal.read(record) for record in journal.records()}
            assert kept.items() <= found.items()
            assert list(found) == sorted(found)
            assert sum(one.records for one in journal.damage) == 0, journal.damage
            await journal.append("metrics", b"after", 1)
        async with opened(later, LIMITS) as journal:
            assert contents(journal) == [*found.values(), b"after"]
            assert journal.damage == ()
