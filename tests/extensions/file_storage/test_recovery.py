"""Reading a journal while a collector writes it."""

from pathlib import Path

from otel_zernel_extensions.file_storage.disk import Disk
from otel_zernel_extensions.file_storage.journal.acknowledgements import Acknowledged, AcknowledgementLog
from otel_zernel_extensions.file_storage.journal.layout import MARKER_SIZE, RECORD_HEADER_SIZE, SEGMENT_HEADER_SIZE
from otel_zernel_extensions.file_storage.journal.limits import JournalLimits
from otel_zernel_extensions.file_storage.journal.recovery import recover
from tests.extensions.file_storage.parts import opened, segments


class BusyDisk(Disk):
    """A disk on which, at the first read, a collector finishes and deletes the second segment."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder

    def read(self, file: int, length: int, start: int) -> bytes:
        if len(segments(self._folder)) == 3:
            first, second, third = (int(path.stem) for path in segments(self._folder))
            log = AcknowledgementLog(self._folder, Disk())
            log.add([(second, third - 1)], Acknowledged.read(self._folder).last)
            log.close()
            segments(self._folder)[1].unlink()
            assert first == 1
        return super().read(file, length, start)


async def test_a_segment_that_is_delivered_meanwhile_is_no_loss(tmp_path: Path) -> None:
    async with opened(tmp_path / "q", JournalLimits(segment_size=1000)) as journal:
        for _ in range(6):
            await journal.append("metrics", bytes(300), 1)
    found = recover(tmp_path / "q", BusyDisk(tmp_path / "q"))
    assert [record.sequence for record in found.records] == [1, 2, 5, 6]
    assert found.damage == ()


async def test_lost_items_are_those_of_the_headers_and_at_least_one_for_each_damaged_header(tmp_path: Path) -> None:
    async with opened(tmp_path / "q", JournalLimits(segment_size=10_000)) as journal:
        for _ in range(6):
            await journal.append("metrics", bytes(300), 20)
    (segment,) = segments(tmp_path / "q")
    content = bytearray(segment.read_bytes())
    record = RECORD_HEADER_SIZE + 300
    for number in (1, 2):  # their data
        content[SEGMENT_HEADER_SIZE + number * record + RECORD_HEADER_SIZE] ^= 1
    segment.write_bytes(content)
    (damage,) = recover(tmp_path / "q", Disk()).damage
    assert str(damage) == f"lost 2 stored batches with 40 items: {segment.name} was changed on the disk"
    content[SEGMENT_HEADER_SIZE + 4 * record + MARKER_SIZE] ^= 1  # the header of another one
    segment.write_bytes(content)
    (damage,) = recover(tmp_path / "q", Disk()).damage
    assert str(damage) == f"lost 3 stored batches with at least 41 items: {segment.name} was changed on the disk"
