"""Writes a journal's files. All of it runs in one thread."""

import errno
import os
from collections.abc import Iterable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from otel_zernel.batch import Signal
from otel_zernel.storage import StorageFailed, TooLarge
from otel_zernel_extensions.file_storage.disk import Disk
from otel_zernel_extensions.file_storage.journal.acknowledgements import AcknowledgementLog
from otel_zernel_extensions.file_storage.journal.layout import (
    LARGEST_DATA,
    RECORD_HEADER_SIZE,
    SEGMENT_HEADER_SIZE,
    RecordHeader,
    crc32,
)
from otel_zernel_extensions.file_storage.journal.limits import SMALLEST_SEGMENT, JournalLimits
from otel_zernel_extensions.file_storage.journal.ranges import of, without
from otel_zernel_extensions.file_storage.journal.recovery import Recovered
from otel_zernel_extensions.file_storage.journal.segments import (
    SegmentFile,
    StoredRecord,
    encoded,
    encoded_size,
    segment_file,
)

_LARGEST_GROUP: Final = 512
"""Records in one write: each has two parts, and Linux takes 1,024."""
_FULL: Final = {errno.ENOSPC, errno.EDQUOT}
_MOST_ITEMS: Final = 2**32 - 1


@dataclass(frozen=True, slots=True)
class NewRecord:
    """A batch to append."""

    signal: Signal
    data: bytes
    items: int
    time_ns: int


class JournalWriter:
    """Appends groups of records and deletes finished segments. `problem` says why the last append failed."""

    def __init__(self, folder: Path, recovered: Recovered, disk: Disk, limits: JournalLimits) -> None:
        self.problem: str | None = None
        self._folder = folder
        self._limits = limits
        self._disk = disk
        self._log = AcknowledgementLog(folder, disk)
        self._last = recovered.last
        self._segments = dict.fromkeys(recovered.segments)
        """Oldest first."""
        self._active: SegmentFile | None = None
        self._refused_size = 0
        """Bytes of the smallest record that the disk refused since the last success."""

    def start(self, recovered: Recovered) -> None:
        """Puts the folder in order, as far as the disk lets it."""
        for scan in recovered.scans:
            with suppress(OSError):
                if scan.header is None and scan.size <= SEGMENT_HEADER_SIZE:
                    scan.path.unlink()
                elif scan.header is None:
                    scan.path.rename(scan.path.with_suffix(".damaged"))
        for segment, segment_scan in zip(
            recovered.segments, (scan for scan in recovered.scans if scan.header), strict=True
        ):
            if segment_scan.torn_at is not None:
                segment.truncate(segment_scan.torn_at)
        self._log.start(recovered.finished, self._last)
        self._delete_finished()

    def append(self, new: Sequence[NewRecord]) -> list[StoredRecord | StorageFailed]:
        """Stores records, with one sync if they fit into one segment. The results are in their order."""
        results: list[StoredRecord | StorageFailed] = []
        while len(results) < len(new):
            group = self._next_group(new[len(results) :])
            results += self._append_group(group)
        self._log.add((), self._last)
        return results

    def _next_group(self, new: Sequence[NewRecord]) -> Sequence[NewRecord]:
        """As many records as fit into the segment, at least one."""
        room = self._limits.segment - (self._active.size if self._active else SEGMENT_HEADER_SIZE)
        count = 0
        for record in new[:_LARGEST_GROUP]:
            room -= encoded_size(record.data)
            if room < 0:
                break
            count += 1
        if not count and self._active:
            self._seal()
            return self._next_group(new)
        return new[: count or 1]

    def _append_group(self, group: Sequence[NewRecord]) -> list[StoredRecord | StorageFailed]:
        try:
            self._check(sum(encoded_size(record.data) for record in group))
            stored = self._store(group)
        except (OSError, StorageFailed) as error:
            if len(group) > 1:  # some of them may fit
                return [result for record in group for result in self._append_group([record])]
            return [self._refused(group[0], error)]
        self.problem = None
        self._refused_size = 0
        return list(stored)

    def _refused(self, record: NewRecord, error: OSError | StorageFailed) -> StorageFailed:
        if isinstance(error, TooLarge):
            return error
        size = encoded_size(record.data)
        self._refused_size = min(size, self._refused_size or size)
        return self._failed(error)

    def _failed(self, error: OSError | StorageFailed) -> StorageFailed:
        if isinstance(error, OSError):
            error = StorageFailed(f"cannot write to {self._folder}: {error.strerror}")
        self.problem = str(error)
        return error

    def _check(self, size: int) -> None:
        """Raises `StorageFailed` if `size` more bytes are too many."""
        limit = min(self._limits.max_size or LARGEST_DATA, LARGEST_DATA)
        if size + SEGMENT_HEADER_SIZE > limit:
            raise TooLarge(f"a batch of {size} bytes is larger than the storage allows ({limit} bytes)")
        if self._limits.max_size and not self._fits(size):
            self._delete_finished(under_pressure=True)
            if not self._fits(size):
                raise StorageFailed(f"{self._folder} has reached its max_size of {self._limits.max_size} bytes")

    def _fits(self, size: int) -> bool:
        header = 0 if self._active else SEGMENT_HEADER_SIZE
        return sum(segment.size for segment in self._segments) + header + size <= self._limits.max_size

    def _store(self, group: Sequence[NewRecord]) -> Sequence[StoredRecord]:
        """Writes and syncs. Tries again in a new segment if the file or the disk fails. Raises `OSError`."""
        try:
            return self._write(group)
        except OSError as error:
            if error.errno in _FULL and not self._delete_finished(under_pressure=True):
                raise
            return self._write(group)

    def _write(self, group: Sequence[NewRecord]) -> Sequence[StoredRecord]:
        if self._active and self._active.is_deleted:
            self._seal()
            self._rewrite_log()
        segment = self._active = self._active or self._new_segment()
        headers = [
            RecordHeader(
                sequence,
                record.signal,
                min(record.items, _MOST_ITEMS),
                len(record.data),
                record.time_ns,
                crc32(record.data),
            )
            for sequence, record in enumerate(group, self._last + 1)
        ]
        try:
            segment.write(encoded(headers, (record.data for record in group), segment.header.marker))
            if self._limits.fsync:
                segment.sync()
        except OSError as error:
            if error.errno not in _FULL or not self._is_cut(segment):
                self._abandon(segment, len(group))
            raise
        return self._stored(segment, headers)

    def _stored(self, segment: SegmentFile, headers: Iterable[RecordHeader]) -> list[StoredRecord]:
        records = []
        for header in headers:
            offset = segment.size + RECORD_HEADER_SIZE
            records.append(
                StoredRecord(
                    header.sequence,
                    header.signal,
                    header.items,
                    header.length,
                    header.time_ns,
                    segment,
                    offset,
                    header.checksum,
                )
            )
            segment.size = offset + header.length
            segment.live.add(header.sequence)
            self._last = header.sequence
        return records

    def _is_cut(self, segment: SegmentFile) -> bool:
        """Whether an incomplete write could be removed."""
        try:
            segment.cut()
        except OSError:
            return False
        return True

    def _new_segment(self) -> SegmentFile:
        self._folder.mkdir(0o750, exist_ok=True)
        while os.path.lexists(segment_file(self._folder, self._last + 1)):  # not ours, or left by a failed disk
            self._last += 1
            self._log.add([(self._last, self._last)], self._last)
        segment = SegmentFile.create(self._folder, self._last + 1, self._disk)
        self._segments[segment] = None
        return segment

    def _seal(self) -> None:
        """Ends the writing to the active segment. It is deleted as soon as its records are finished."""
        if self._active:
            self._active.seal()
            self._active = None
            self._delete_finished()

    def _abandon(self, segment: SegmentFile, count: int) -> None:
        """Writes no more to a file that has failed: after a failed sync, the kernel may have dropped its data.

        The sequences of the `count` failed records are not used again, since the file may still contain them.
        """
        failed = range(self._last + 1, self._last + count + 1)
        self._last += count
        with suppress(OSError):
            segment.cut()
        self._log.add(of(failed), self._last)
        self._log.sync()
        self._seal()

    def acknowledge(self, removed: Iterable[StoredRecord]) -> None:
        """Notes that records are removed, and deletes the segments that have no others. Repetitions have no effect."""
        finished = []
        for record in removed:
            if record.sequence in record.segment.live:
                record.segment.live.remove(record.sequence)
                finished.append(record.sequence)
        self._log.add(of(finished), self._last)
        self._delete_finished()
        if self._log.should_rewrite:
            self._rewrite_log()

    def _rewrite_log(self) -> None:
        live = of(sequence for segment in self._segments for sequence in segment.live)
        with suppress(OSError):
            self._log.rewrite(without((1, self._last), live), self._last)

    def _delete_finished(self, *, under_pressure: bool = False) -> bool:
        """Deletes the segments without live records: the active one too, if room is needed. Whether there was one."""
        done = [
            segment
            for segment in self._segments
            if not segment.live and (under_pressure or segment is not self._active)
        ]
        if not done:
            return False
        self._log.sync()  # else, after a power failure, the records would count as lost
        for segment in done:
            if segment is self._active:
                self._active = None
            segment.delete()
            del self._segments[segment]
        self._log.add((), self._last)
        return True

    def try_storage(self) -> None:
        """Clears `problem` if there is room again for a record as large as the smallest refused one."""
        try:
            self._check(self._refused_size)
            segment = self._active = self._active or self._new_segment()
            try:
                segment.write([bytes(min(self._refused_size, SMALLEST_SEGMENT))])
                segment.sync()
                segment.cut()
            except OSError:
                self._abandon(segment, 0)
                raise
        except (OSError, StorageFailed) as error:
            self._failed(error)
        else:
            self.problem = None
            self._refused_size = 0

    def close(self) -> None:
        """Releases the files. If all records are finished, only the log stays."""
        self._delete_finished(under_pressure=True)
        self._log.add((), self._last)
        self._log.sync()
        self._log.close()
        if self._active:
            self._active.seal()
            self._active = None
