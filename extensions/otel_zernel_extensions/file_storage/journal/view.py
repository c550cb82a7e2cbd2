"""A read-only look at a journal's folder, for `otel-zernel queue`."""

from collections.abc import Iterator
from pathlib import Path

from otel_zernel.storage import JournalView, Record, StorageFailed
from otel_zernel_extensions.file_storage.disk import Disk
from otel_zernel_extensions.file_storage.journal.layout import UnknownVersion
from otel_zernel_extensions.file_storage.journal.recovery import recover
from otel_zernel_extensions.file_storage.journal.segments import StoredRecord


class FileJournalView(JournalView):
    """The content of a folder when it was read."""

    def __init__(self, component: str, folder: Path) -> None:
        """Reads all segments. Raises `StorageFailed`."""
        try:
            recovered = recover(folder, Disk())
        except OSError as error:
            raise StorageFailed(f"cannot read {folder}: {error.strerror}") from error
        except UnknownVersion as error:
            raise StorageFailed(str(error)) from error
        self.component = component
        # A running collector may be writing the last record: only lost records are damage here.
        self.damage = tuple(one for one in recovered.damage if one.records)
        self.disk_bytes = sum(one.size for one in recovered.scans)
        self._records = recovered.records

    def records(self) -> Iterator[Record]:
        return iter(self._records)

    def read(self, record: Record) -> bytes:
        if not isinstance(record, StoredRecord):
            raise TypeError("the record is of another journal")
        return record.read()
