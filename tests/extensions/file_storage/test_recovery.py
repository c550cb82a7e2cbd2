"""Reading a journal while a collector writes it."""

from pathlib import Path

from otel_zernel_extensions.file_storage.disk import Disk
from otel_zernel_extensions.file_storage.journal.acknowledgements import Acknowledged, AcknowledgementLog
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
