"""The log of a journal's finished records: a file of 20-byte entries, written without sync.

A lost entry makes a record appear again, never vanish. An entry `(first, last)` says that these sequences are finished:
removed, or never answered. The entry `(0, last)` says that the sequences up to `last` are in use. So a journal notices
records, and whole segments, that vanish from the disk.
"""

import os
import struct
from collections.abc import Iterable
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from otel_zernel_extensions.file_storage.disk import Disk
from otel_zernel_extensions.file_storage.journal.layout import VERSION, UnknownVersion, crc32
from otel_zernel_extensions.file_storage.journal.ranges import Range, merged

FILE_NAME: Final = "acknowledgements"
_MAGIC: Final = b"ZERNELA\n"
_HEADER = struct.Struct("<8sHxxxxxx")
_ENTRY = struct.Struct("<QQ")
_CHECKSUM = struct.Struct("<I")
_SIZE: Final = _ENTRY.size + _CHECKSUM.size
"""Of an entry, and of the header."""
_LARGEST: Final = 1 << 48
"""No sequence is as large: 1,000,000 batches a second for 9 years."""
_GROWTH: Final = 1 << 20
"""Bytes by which the log grows before it is written anew."""


def _sealed(fields: bytes) -> bytes:
    return fields + _CHECKSUM.pack(crc32(fields))


@dataclass(frozen=True, slots=True)
class Acknowledged:
    """The content of a log."""

    finished: list[Range]
    """Merged."""
    last: int
    """The sequences up to this one are in use; 0 for none."""
    complete: bool
    """Whether no entry is missing or damaged. Else, records may appear again."""
    exists: bool = True

    @classmethod
    def decode(cls, data: bytes) -> "Acknowledged":
        """Skips damaged entries. Raises `UnknownVersion`."""
        header, body = data[:_SIZE], data[_SIZE:]
        intact = header.startswith(_MAGIC) and _sealed(header[: _HEADER.size]) == header
        if intact and (version := _HEADER.unpack_from(header)[1]) > VERSION:
            raise UnknownVersion(f"has version {version} of the format; this release reads {VERSION}")
        ranges, last, complete = [], 0, intact and len(body) % _SIZE == 0
        for start in range(0, len(body) - _SIZE + 1, _SIZE):
            entry = body[start : start + _SIZE]
            first, end = _ENTRY.unpack_from(entry)
            if _sealed(entry[: _ENTRY.size]) != entry or not first <= end < _LARGEST:
                complete = False
                continue
            last = max(last, end)
            if first:
                ranges.append((first, end))
        return cls(merged(ranges), last, complete)

    @classmethod
    def read(cls, folder: Path) -> "Acknowledged":
        """The log of a journal. Raises `OSError` and `UnknownVersion`."""
        try:
            return cls.decode((folder / FILE_NAME).read_bytes())
        except FileNotFoundError:
            return cls([], 0, complete=False, exists=False)


class AcknowledgementLog:
    """Writes the log. While the disk refuses, the entries wait in memory."""

    def __init__(self, folder: Path, disk: Disk) -> None:
        self._folder = folder
        self._disk = disk
        self._file: int | None = None
        self._end = 0
        self._rewrite_at = 0
        self._waiting: list[Range] = []

    @property
    def should_rewrite(self) -> bool:
        """Whether the log has grown so much that it should be written anew."""
        return self._end >= self._rewrite_at

    def start(self, finished: list[Range], last: int) -> None:
        """Replaces the log, or adds to the old one if the disk is full. On a read-only disk, entries wait."""
        try:
            self.rewrite(finished, last)
        except OSError:
            self.add(finished, last)

    def rewrite(self, finished: Iterable[Range], last: int) -> None:
        """Replaces the log by one with these entries, durably. Raises `OSError`; then the old log stays."""
        entries = b"".join(_sealed(_ENTRY.pack(*range_)) for range_ in (*finished, (0, last)))
        path = self._folder / FILE_NAME
        self._rewrite_at = self._end + _GROWTH  # after a failure, not again at once
        self._folder.mkdir(0o750, exist_ok=True)
        self._disk.replace(path, _sealed(_HEADER.pack(_MAGIC, VERSION)) + entries)
        self.close()
        self._file = os.open(path, os.O_WRONLY | os.O_CLOEXEC)
        self._end = _SIZE + len(entries)
        self._rewrite_at = self._end + _GROWTH
        self._waiting.clear()

    def add(self, finished: Iterable[Range], last: int) -> None:
        """Writes entries, and those that wait. They wait on if the disk refuses."""
        self._waiting += finished
        entries = b"".join(_sealed(_ENTRY.pack(*range_)) for range_ in (*merged(self._waiting), (0, last)))
        with suppress(OSError):
            self._disk.write(self._opened(), [entries], self._end)
            self._end += len(entries)
            self._waiting.clear()

    def _opened(self) -> int:
        """The file. It was not opened before if the disk refused at the start."""
        if self._file is None:
            self._file = os.open(self._folder / FILE_NAME, os.O_WRONLY | os.O_CREAT | os.O_CLOEXEC, 0o640)
            self._end = os.fstat(self._file).st_size // _SIZE * _SIZE
            if not self._end:
                self._disk.write(self._file, [_sealed(_HEADER.pack(_MAGIC, VERSION))], 0)
                self._end = _SIZE
        return self._file

    def sync(self) -> None:
        """Makes the entries durable, if the disk lets it."""
        with suppress(OSError):
            if self._file is not None:
                self._disk.sync(self._file)

    def close(self) -> None:
        """Closes the file. Safe to call twice."""
        if self._file is not None:
            os.close(self._file)
            self._file = None
