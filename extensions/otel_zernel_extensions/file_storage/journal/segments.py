"""A segment: one file of a journal, written once from begin to end, and deleted when all its records are finished."""

import errno
import os
import re
from collections.abc import Iterable, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from otel_zernel.storage import DataLost, Record, StorageFailed
from otel_zernel_extensions.file_storage.disk import Disk
from otel_zernel_extensions.file_storage.journal.layout import (
    RECORD_HEADER_SIZE,
    SEGMENT_HEADER_SIZE,
    RecordHeader,
    SegmentHeader,
    crc32,
)

_NAME = re.compile(r"(\d{20})\.segment")
_LASTING: Final = {errno.EIO, errno.ENOENT}
"""Errors of reading that stay: a bad sector, a deleted file. Others pass, such as too many open files."""
_OPEN: Final = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC


def segment_files(folder: Path) -> list[Path]:
    """The segments in a folder, oldest first. Other files are not ours. Raises `OSError`."""
    try:
        return sorted(path for path in folder.iterdir() if _NAME.fullmatch(path.name) and path.is_file())
    except FileNotFoundError:
        return []


def segment_file(folder: Path, first: int) -> Path:
    """The file of the segment that begins with this sequence."""
    return folder / f"{first:020}.segment"


def first_by_name(path: Path) -> int:
    """The first sequence in a segment, as its name says."""
    return int(path.name.partition(".")[0])


@dataclass(eq=False, slots=True)
class SegmentFile:
    """A segment file. Only the thread of its journal uses it, except for `read`."""

    path: Path
    header: SegmentHeader
    size: int
    """Bytes up to the end of the last complete record."""
    disk: Disk
    live: set[int] = field(default_factory=set)
    """The sequences of the records that are not removed."""
    _file: int | None = None

    @classmethod
    def create(cls, folder: Path, first: int, disk: Disk) -> "SegmentFile":
        """A new file for records from sequence `first` on, durable before it has any. Raises `OSError`."""
        path, header = segment_file(folder, first), SegmentHeader.new(first)
        segment = cls(path, header, 0, disk, _file=os.open(path, _OPEN, 0o640))
        try:
            segment.write([header.encode()])
            segment.size = SEGMENT_HEADER_SIZE
            segment.sync()
            disk.sync_directory(folder)
        except OSError:
            segment.seal()
            path.unlink(missing_ok=True)
            raise
        return segment

    @property
    def is_deleted(self) -> bool:
        """Whether somebody has deleted the file while it was written."""
        return self._file is not None and os.fstat(self._file).st_nlink == 0

    def write(self, parts: Sequence[bytes]) -> None:
        """Writes bytes after the last complete record. They belong to it once `size` grows. Raises `OSError`."""
        self.disk.write(self._open_file(), parts, self.size)

    def sync(self) -> None:
        """Makes the records durable. Raises `OSError`; the file must not be used for writing any more."""
        self.disk.sync(self._open_file())

    def cut(self) -> None:
        """Removes the bytes after the last complete record. Raises `OSError`."""
        self.disk.truncate(self._open_file(), self.size)

    def truncate(self, size: int) -> None:
        """Removes an unfinished record from a sealed file, if the disk lets it."""
        with suppress(OSError):
            os.truncate(self.path, size)
            self.size = size

    def seal(self) -> None:
        """Ends the writing. Safe to call twice."""
        if self._file is not None:
            os.close(self._file)
            self._file = None

    def _open_file(self) -> int:
        if self._file is None:
            raise OSError(f"{self.path.name} is sealed")
        return self._file

    def delete(self) -> None:
        """Deletes the file. If that fails, the next opening of the journal deletes it."""
        self.seal()
        with suppress(OSError):
            self.path.unlink(missing_ok=True)
            self.disk.sync_directory(self.path.parent)


@dataclass(frozen=True, slots=True)
class StoredRecord(Record):
    """A record with its place."""

    segment: SegmentFile = field(repr=False, compare=False)
    offset: int
    """Of the data, in bytes from the begin of the file."""
    checksum: int

    def read(self) -> bytes:
        """The data. May be called in any thread. Raises `StorageFailed`."""
        return read_data(self.segment.path, self.offset, self.size, self.checksum)


def read_data(path: Path, offset: int, size: int, checksum: int) -> bytes:
    """A part of a file with this checksum. Raises `DataLost`, or another `StorageFailed` if it cannot be read now."""
    try:
        file = os.open(path, os.O_RDONLY | os.O_CLOEXEC)  # to keep many files open saves less than 5 us
        try:
            data = os.pread(file, size, offset)
        finally:
            os.close(file)
    except OSError as error:
        failure = DataLost if error.errno in _LASTING else StorageFailed
        raise failure(f"cannot read {path}: {error.strerror}") from error
    if len(data) != size or crc32(data) != checksum:
        raise DataLost(f"{path} was changed on the disk at byte {offset}")
    return data


def encoded(headers: Iterable[RecordHeader], data: Iterable[bytes], marker: bytes) -> list[bytes]:
    """The parts of records: each header, followed by its data."""
    return [part for header, body in zip(headers, data, strict=True) for part in (header.encode(marker), body)]


def encoded_size(data: bytes) -> int:
    """The bytes of a record."""
    return RECORD_HEADER_SIZE + len(data)
