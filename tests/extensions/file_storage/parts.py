"""What the tests of the journal share: a journal in a folder, and a disk that fails on demand."""

import errno
import os
from collections import Counter
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from pathlib import Path

from otel_zernel.clock import SystemClock
from otel_zernel.storage import Journal
from otel_zernel_extensions.file_storage.disk import Disk
from otel_zernel_extensions.file_storage.journal.journal import FileJournal
from otel_zernel_extensions.file_storage.journal.limits import JournalLimits


@asynccontextmanager
async def opened(
    folder: Path, limits: JournalLimits | None = None, disk: Disk | None = None
) -> AsyncIterator[FileJournal]:
    """A journal that is closed at the end."""
    journal = await FileJournal.open(folder, SystemClock(), limits, disk)
    try:
        yield journal
    finally:
        await journal.close()


def contents(journal: Journal) -> list[bytes]:
    """The data of all records that were found at the opening, in order."""
    return [journal.read(record) for record in journal.records()]


def segments(folder: Path) -> list[Path]:
    return sorted(folder.glob("*.segment"))


class FailingDisk(Disk):
    """Fails calls with an error, once for each error that a test adds. Counts all calls."""

    def __init__(self) -> None:
        self.calls: Counter[str] = Counter()
        self.errors: dict[str, list[int]] = {"write": [], "truncate": [], "sync": [], "sync_directory": []}
        """The errors of the next calls, by the name of the call; 0 for none."""
        self.bad_bytes: range = range(0)
        """The places in every file that cannot be read."""

    def read(self, file: int, length: int, start: int) -> bytes:
        if range(max(start, self.bad_bytes.start), min(start + length, self.bad_bytes.stop)):
            raise OSError(errno.EIO, os.strerror(errno.EIO))
        return super().read(file, length, start)

    def _call(self, name: str) -> None:
        self.calls[name] += 1
        error = self.errors[name].pop(0) if self.errors[name] else 0
        if error:
            raise OSError(error, os.strerror(error))

    def write(self, file: int, parts: Sequence[bytes], start: int) -> None:
        try:
            self._call("write")
        except OSError as error:
            if error.errno == errno.ENOSPC:  # a part of the data still fits
                whole = b"".join(parts)
                super().write(file, [whole[: len(whole) // 2]], start)
            raise
        super().write(file, parts, start)

    def truncate(self, file: int, size: int) -> None:
        self._call("truncate")
        super().truncate(file, size)

    def sync(self, file: int) -> None:
        self._call("sync")
        super().sync(file)

    def sync_directory(self, directory: Path) -> None:
        self._call("sync_directory")
        super().sync_directory(directory)


def files(folder: Path, ending: str) -> list[Path]:
    """All files below a folder whose names end so."""
    return sorted(folder.rglob(f"*{ending}"))
