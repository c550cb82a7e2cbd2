"""Reads what a journal has on its disk: the records, and what is missing. Changes nothing.

Sequences have no gaps. So every sequence up to the last one is in a segment, or finished by the log, or lost.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path

from otel_zernel.storage import Damage
from otel_zernel_extensions.file_storage.disk import Disk
from otel_zernel_extensions.file_storage.journal.acknowledgements import Acknowledged
from otel_zernel_extensions.file_storage.journal.layout import UnknownVersion
from otel_zernel_extensions.file_storage.journal.ranges import Range, count, merged, of, without
from otel_zernel_extensions.file_storage.journal.scanning import SegmentScan, scan
from otel_zernel_extensions.file_storage.journal.segments import SegmentFile, StoredRecord, segment_files


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
    scans = sorted(_scans(folder, disk), key=lambda one: one.first)
    after = Acknowledged.read(folder)  # finds the segments that were deleted in the meantime
    finished = merged(before.finished + after.finished)
    segments, records = _live(scans, finished, disk)
    last = max(before.last, *(_last(one) for one in scans), 0)
    damage = (*_missing_log(after, scans), *_lost(scans, finished, last, complete=before.complete and after.complete))
    return Recovered(scans, segments, records, last, damage)


def _scans(folder: Path, disk: Disk) -> Iterator[SegmentScan]:
    for path in segment_files(folder):
        try:
            yield scan(path, disk)
        except FileNotFoundError:  # a running collector has finished it
            continue
        except UnknownVersion as error:
            raise UnknownVersion(f"{path} {error}") from error


def _live(
    scans: Sequence[SegmentScan], finished: list[Range], disk: Disk
) -> tuple[list[SegmentFile], list[StoredRecord]]:
    records: dict[int, StoredRecord] = {}
    segments = []
    gone = _Members(finished)
    for one in scans:
        if one.header is None:
            continue
        segment = SegmentFile(one.path, one.header, one.size, disk)
        segments.append(segment)
        for header, offset in one.intact:
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


def _last(one: SegmentScan) -> int:
    """The last sequence that the segment is known to have used."""
    seen = [header.sequence for header, _ in one.intact] + [header.sequence for header in one.changed]
    return max(seen, default=one.first - 1)


def _missing_log(log: Acknowledged, scans: Sequence[SegmentScan]) -> Iterator[Damage]:
    if scans and not log.complete:
        state = "is damaged" if log.exists else "is missing"
        yield Damage(0, 0, f"the log of acknowledgements {state}: batches that were delivered may be sent again")


def _lost(scans: list[SegmentScan], finished: list[Range], last: int, *, complete: bool) -> Iterator[Damage]:
    """The records that are neither in a segment nor finished. Without a complete log, only those within segments."""
    known = merged([*finished, *of(header.sequence for one in scans for header, _ in one.intact)])
    if complete:
        first = scans[0].first if scans else last + 1
        if lost := count(without((1, first - 1), known)):
            yield Damage(lost, 0, "segment files are missing", lost, lost)
    ends = [following.first - 1 for _, following in pairwise(scans)] + [last]
    for one, end in zip(scans, ends, strict=False):  # without scans, there is an end too many
        span = (one.first, end if complete else min(end, _last(one)))
        yield from _lost_in(one, list(without(span, known)))


def _lost_in(one: SegmentScan, missing: list[Range]) -> Iterator[Damage]:
    lost = count(missing)
    if not lost:
        if one.torn_at is not None:
            yield Damage(0, one.size - one.torn_at, f"{one.path.name} ended with an unfinished record")
        return
    readable = [header for header in one.changed if any(a <= header.sequence <= b for a, b in missing)]
    unknown = lost - len(readable)
    items = sum(header.items for header in readable) + unknown
    reason = f"{one.path.name} was changed on the disk" if one.lost_bytes else f"{one.path.name} is incomplete"
    yield Damage(lost, one.lost_bytes, reason, items, unknown)
