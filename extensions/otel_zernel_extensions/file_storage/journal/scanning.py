"""Reads a whole segment, and finds every intact record in it, whatever happened to the bytes between."""

import errno
import os
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from otel_zernel_extensions.file_storage.disk import Disk
from otel_zernel_extensions.file_storage.journal.layout import (
    MARKER_SIZE,
    RECORD_HEADER_SIZE,
    SEGMENT_HEADER_SIZE,
    RecordHeader,
    SegmentHeader,
    crc32,
)
from otel_zernel_extensions.file_storage.journal.segments import first_by_name

_PIECE: Final = 1 << 20
"""Bytes that are read at once."""
_SECTOR: Final = 512
"""Bytes that a disk loses at least."""


@dataclass(slots=True)
class SegmentScan:
    """The content of one segment."""

    path: Path
    header: SegmentHeader | None
    """None if no record can be found, because both copies of the header and the first record are damaged."""
    size: int = 0
    intact: list[tuple[RecordHeader, int]] = field(default_factory=list)
    """Complete records, each with the offset of its data."""
    changed: list[RecordHeader] = field(default_factory=list)
    """Records whose data were changed."""
    unreadable: int = 0
    """Bytes between records."""
    torn_at: int | None = None
    """The begin of an unfinished record at the end of the file."""

    @property
    def first(self) -> int:
        """The first sequence."""
        return self.header.first if self.header else first_by_name(self.path)

    @property
    def lost_bytes(self) -> int:
        """Bytes in which no record was found."""
        torn = 0 if self.torn_at is None else self.size - self.torn_at
        return self.unreadable + torn + sum(one.length for one in self.changed)


def scan(path: Path, disk: Disk) -> SegmentScan:
    """Reads a segment. Sectors that cannot be read count as zeros. Raises `OSError` and `UnknownVersion`."""
    file = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    try:
        reader = _Reader(file, disk)
        result = SegmentScan(path, _header(reader, path), reader.size)
        if result.header:
            _scan_records(reader, result, result.header.marker)
        else:
            result.unreadable = reader.size
        return result
    finally:
        os.close(file)


def _header(reader: "_Reader", path: Path) -> SegmentHeader | None:
    start = reader.read(0, SEGMENT_HEADER_SIZE + RECORD_HEADER_SIZE)
    if header := SegmentHeader.decode(start):
        return header
    record = start[SEGMENT_HEADER_SIZE:]
    guess = SegmentHeader(first_by_name(path), record[:MARKER_SIZE])
    return guess if RecordHeader.decode(record, guess.marker) else None


def _scan_records(reader: "_Reader", result: SegmentScan, marker: bytes) -> None:
    at = SEGMENT_HEADER_SIZE
    while at < reader.size:
        record = RecordHeader.decode(reader.read(at, RECORD_HEADER_SIZE), marker)
        data = at + RECORD_HEADER_SIZE
        if record and data + record.length <= reader.size:
            if reader.checksum(data, record.length) == record.checksum:
                result.intact.append((record, data))
            else:
                result.changed.append(record)
            at = data + record.length
            continue
        found = reader.find(marker, at + 1)
        if found == reader.size and (record or reader.is_torn(at)):
            result.torn_at = at
            return
        result.unreadable += found - at
        at = found


class _Reader:
    """Reads a file through a window of 1 MiB."""

    def __init__(self, file: int, disk: Disk) -> None:
        self._file = file
        self._disk = disk
        self.size = os.fstat(file).st_size
        self._start = 0
        self._window = b""

    def read(self, start: int, length: int) -> bytes:
        """A short piece; shorter at the end of the file."""
        at = start - self._start
        if at < 0 or at + length > len(self._window):
            self._start, at = start, 0
            self._window = self._fetch(max(length, _PIECE), start)
        return self._window[at : at + length]

    def _fetch(self, length: int, start: int) -> bytes:
        try:
            return self._disk.read(self._file, length, start)
        except OSError as error:
            if error.errno != errno.EIO:
                raise
            length = min(length, self.size - start)
            if length <= _SECTOR:
                return bytes(length)
            half = length // 2 // _SECTOR * _SECTOR or _SECTOR
            return self._fetch(half, start) + self._fetch(length - half, start + half)

    def checksum(self, start: int, length: int) -> int:
        """The checksum of a piece of any length."""
        value, end = 0, start + length
        while start < end:
            piece = self.read(start, min(_PIECE, end - start))
            if not piece:
                return -1  # the file became shorter meanwhile
            value, start = crc32(piece, value), start + len(piece)
        return value

    def find(self, marker: bytes, start: int) -> int:
        """Where the next marker begins; the size of the file if there is none."""
        while start + len(marker) <= self.size:
            piece = self.read(start, min(_PIECE, self.size - start))
            if (found := piece.find(marker)) >= 0:
                return start + found
            if len(piece) < len(marker):
                break  # the file became shorter meanwhile
            start += len(piece) - len(marker) + 1
        return self.size

    def is_torn(self, start: int) -> bool:
        """Whether the rest of the file is the begin of a header, or has zeros only, as after a power failure."""
        if self.size - start < RECORD_HEADER_SIZE:
            return True
        while (piece := self.read(start, _PIECE)) and not piece.strip(b"\0"):
            start += len(piece)
        return not piece
