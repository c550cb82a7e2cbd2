"""Reads what a journal has on its disk: the records, and what is missing. Changes nothing.

Sequences have no gaps. So every sequence up to the last one is in a segment, or finished by the log, or lost. A whole
segment is read, and every intact record in it is found, whatever happened to the bytes between.
"""

import errno
import os
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from pathlib import Path
from typing import Final

from otel_zernel.storage import Damage
from otel_zernel_extensions.file_storage.disk import Disk
from otel_zernel_extensions.file_storage.journal import layout
from otel_zernel_extensions.file_storage.journal.acknowledgements import Acknowledged
from otel_zernel_extensions.file_storage.journal.ranges import Range, count, merged, of, without
from otel_zernel_extensions.file_storage.journal.segments import SegmentFile, StoredRecord, first_by_name, segment_files

_PIECE: Final = 1 << 20
"""Bytes that are read at once."""
_SECTOR: Final = 512
"""Bytes that a disk loses at least."""


@dataclass(slots=True)
class SegmentScan:
    """The content of one segment."""

    path: Path
    header: layout.SegmentHeader | None
    """None if no record can be found, because both copies of the header and the first record are damaged."""
    size: int = 0
    intact: list[tuple[layout.RecordHeader, int]] = field(default_factory=list)
    """Complete records, each with the offset of its data."""
    changed: list[layout.RecordHeader] = field(default_factory=list)
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
        return self.unreadable + torn + sum(record.length for record in self.changed)


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


def _header(reader: "_Reader", path: Path) -> layout.SegmentHeader | None:
    start = reader.read(0, layout.SEGMENT_HEADER_SIZE + layout.RECORD_HEADER_SIZE)
    if header := layout.SegmentHeader.decode(start):
        return header
    record = start[layout.SEGMENT_HEADER_SIZE :]
    guess = layout.SegmentHeader(first_by_name(path), record[: layout.MARKER_SIZE])
    return guess if layout.RecordHeader.decode(record, guess.marker) else None


def _scan_records(reader: "_Reader", result: SegmentScan, marker: bytes) -> None:
    at = layout.SEGMENT_HEADER_SIZE
    while at < reader.size:
        record = layout.RecordHeader.decode(reader.read(at, layout.RECORD_HEADER_SIZE), marker)
        data = at + layout.RECORD_HEADER_SIZE
        if record and data + record.length <= reader.size:
            if reader.checksum(data, record.length) == record.checksum:
                result.intact.append((record, data))
            else:
                result.changed.append(record)
            at = data + record.length
            continue
        find = reader.find(marker, at + 1)
        if find == reader.size and (record or reader.is_torn(at)):
            result.torn_at = at
            return
        result.unreadable += find - at
        at = find


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
            value, start = layout.crc32(piece, value), start + len(piece)
        return value

    def find(self, marker: bytes, start: int) -> int:
        """Where the next marker begins; the size of the file if there is none."""
        while start + len(marker) <= self.size:
            piece = self.read(start, min(_PIECE, self.size - start))
            if (at := piece.find(marker)) >= 0:
                return start + at
            if len(piece) < len(marker):
                break  # the file became shorter meanwhile
            start += len(piece) - len(marker) + 1
        return self.size

    def is_torn(self, start: int) -> bool:
        """Whether the rest of the file is the begin of a header, or has zeros only, as after a power failure."""
        if self.size - start < layout.RECORD_HEADER_SIZE:
            return True
        while (piece := self.read(start, _PIECE)) and not piece.strip(b"\0"):
            start += len(piece)
        return not piece


@dataclass(frozen=True, slots=True)
class Recovered:
    """The content of a journal's folder."""

    scans: list[SegmentScan]
    segments: list[SegmentFile]
    """The readable segments, oldest first."""
    records: list[StoredRecord]
    """Those that are not removed, oldest first."""
    last: int
    """The last sequence in use; 0 for none."""
    damage: tuple[Damage, ...]

    @property
    def finished(self) -> list[Range]:
        """The sequences that never appear again: removed or lost."""
        return list(without((1, self.last), of(record.sequence for record in self.records)))


def recover(folder: Path, disk: Disk) -> Recovered:
    """Reads a journal. A collector may write it meanwhile. Raises `OSError` and `UnknownVersion`."""
    before = Acknowledged.read(folder)
    scans = sorted(_scans(folder, disk), key=lambda scan: scan.first)
    after = Acknowledged.read(folder)  # finds the segments that were deleted in the meantime
    finished = merged(before.finished + after.finished)
    segments, records = _live(scans, finished, disk)
    last = max(before.last, *(_last(scan) for scan in scans), 0)
    damage = (*_missing_log(after, scans), *_lost(scans, finished, last, complete=before.complete and after.complete))
    return Recovered(scans, segments, records, last, damage)


def _scans(folder: Path, disk: Disk) -> Iterator[SegmentScan]:
    for path in segment_files(folder):
        try:
            yield scan(path, disk)
        except FileNotFoundError:  # a running collector has finished it
            continue
        except layout.UnknownVersion as error:
            raise layout.UnknownVersion(f"{path} {error}") from error


def _live(
    scans: Sequence[SegmentScan], finished: list[Range], disk: Disk
) -> tuple[list[SegmentFile], list[StoredRecord]]:
    records: dict[int, StoredRecord] = {}
    segments = []
    gone = _Members(finished)
    for scan in scans:
        if scan.header is None:
            continue
        segment = SegmentFile(scan.path, scan.header, scan.size, disk)
        segments.append(segment)
        for header, offset in scan.intact:
            if header.sequence in records or header.sequence in gone:
                continue
            segment.live.add(header.sequence)
            records[header.sequence] = StoredRecord(
                header.sequence,
                header.signal,
                header.items,
                header.length,
                header.time_ns,
                segment,
                offset,
                header.checksum,
            )
    return segments, [records[sequence] for sequence in sorted(records)]


class _Members:
    """Whether a sequence is in ranges, for sequences that mostly increase."""

    def __init__(self, ranges: Sequence[Range]) -> None:
        self._ranges = ranges
        self._at = 0

    def __contains__(self, sequence: object) -> bool:
        assert isinstance(sequence, int)  # noqa: S101
        if self._at and self._ranges[self._at - 1][1] >= sequence:
            self._at = 0
        while self._at < len(self._ranges) and self._ranges[self._at][1] < sequence:
            self._at += 1
        return self._at < len(self._ranges) and self._ranges[self._at][0] <= sequence


def _last(scan: SegmentScan) -> int:
    """The last sequence that the segment is known to have used."""
    seen = [header.sequence for header, _ in scan.intact] + [header.sequence for header in scan.changed]
    return max(seen, default=scan.first - 1)


def _missing_log(log: Acknowledged, scans: Sequence[SegmentScan]) -> Iterator[Damage]:
    if scans and not log.complete:
        state = "is damaged" if log.exists else "is missing"
        yield Damage(0, 0, f"the log of acknowledgements {state}: batches that were delivered may be sent again")


def _lost(scans: list[SegmentScan], finished: list[Range], last: int, *, complete: bool) -> Iterator[Damage]:
    """The records that are neither in a segment nor finished. Without a complete log, only those within segments."""
    known = merged([*finished, *of(header.sequence for scan in scans for header, _ in scan.intact)])
    if complete:
        first = scans[0].first if scans else last + 1
        if lost := count(without((1, first - 1), known)):
            yield Damage(lost, 0, "segment files are missing", lost, lost)
    ends = [following.first - 1 for _, following in pairwise(scans)] + [last]
    for scan, end in zip(scans, ends, strict=False):  # without scans, there is an end too many
        span = (scan.first, end if complete else min(end, _last(scan)))
        yield from _lost_in(scan, list(without(span, known)))


def _lost_in(scan: SegmentScan, missing: list[Range]) -> Iterator[Damage]:
    lost = count(missing)
    if not lost:
        if scan.torn_at is not None:
            yield Damage(0, scan.size - scan.torn_at, f"{scan.path.name} ended with an unfinished record")
        return
    readable = [header for header in scan.changed if any(a <= header.sequence <= b for a, b in missing)]
    unknown = lost - len(readable)
    items = sum(header.items for header in readable) + unknown
    reason = f"{scan.path.name} was changed on the disk" if scan.lost_bytes else f"{scan.path.name} is incomplete"
    yield Damage(lost, scan.lost_bytes, reason, items, unknown)
