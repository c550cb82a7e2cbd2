"""The contract of storage extensions: journals for durable queues, and small values such as positions in files.

A component names its storage extension in its configuration, and gets it by `context.extension(id)`. Everything is
stored under the component's path, so two components never share data.
"""

from abc import ABC, abstractmethod
from collections.abc import Awaitable, Iterator
from dataclasses import dataclass
from pathlib import Path

from otel_zernel.batch import Signal
from otel_zernel.component import Extension
from otel_zernel.errors import ZernelError


class StorageFailed(ZernelError):
    """The storage cannot write or read now: the disk is full, read-only or broken. One sentence for the user."""


class TooLarge(StorageFailed):
    """A batch that will never fit: it is larger than the storage's limit."""


class DataLost(StorageFailed):
    """The data of a record are gone for good: they were changed or deleted on the disk, or it cannot read them."""


@dataclass(frozen=True, slots=True)
class Record:
    """The description of one stored batch of one signal. Its data is read by `Journal.read`."""

    sequence: int
    """Increases with each appended record, also after a restart. Never used twice."""
    signal: Signal
    items: int
    """Metric points, spans or log records."""
    size: int
    """The length of the data in bytes."""
    time_ns: int
    """When it was appended: wall clock, ns."""


@dataclass(frozen=True, slots=True)
class Damage:
    """Records that a journal lost before it was opened: a torn end, changed bytes, a missing segment."""

    records: int
    """At least so many; 0 if only an unfinished record was cut, which nobody was promised."""
    bytes: int
    reason: str
    items: int = 0
    """Metric points, spans and log records in them, at least so many: a record without readable header counts as 1."""
    unknown: int = 0
    """The records without readable header."""

    def __str__(self) -> str:
        """`lost 3 stored batches with at least 41 items: 00000000000000000001.segment was changed on the disk`."""
        if not self.records:
            return self.reason
        batches, items = "batch" if self.records == 1 else "batches", "item" if self.items == 1 else "items"
        least = "at least " if self.unknown else ""
        return f"lost {self.records:,} stored {batches} with {least}{self.items:,} {items}: {self.reason}"


class Journal(ABC):
    """Batches on a disk, oldest first. Each stays until it is removed; after a restart, the others are there again.

    `append` does not block, and `read` does: call it in a thread. The other methods are short and may be called on the
    event loop.
    """

    damage: tuple[Damage, ...] = ()
    """What was missing when the journal was opened."""

    @abstractmethod
    def append(self, signal: Signal, data: bytes, items: int) -> Awaitable[Record]:
        """Stores a batch. The result is ready when the batch is on the disk (`fsync`).

        Appends run in the order of the calls, and concurrent ones share one sync. Raises `StorageFailed` if the batch
        is not stored (`TooLarge` if it never can be); nothing of it is then left. If the result is cancelled, the batch
        is removed again.
        """

    @abstractmethod
    def read(self, record: Record) -> bytes:
        """The data of a record. Blocks while the disk is read; call it in a thread, at any time.

        Raises `DataLost` if they are gone for good, and another `StorageFailed` if a later attempt may succeed.
        """

    @abstractmethod
    def remove(self, record: Record) -> None:
        """Deletes a record for good. A removal that a crash loses makes the record appear again, never vanish."""

    @abstractmethod
    def records(self) -> Iterator[Record]:
        """The records that were found when the journal was opened and are not removed, oldest first."""

    @property
    @abstractmethod
    def problem(self) -> str | None:
        """Why the last append failed, one sentence; None once an append, or a trial of the disk, succeeded."""

    @abstractmethod
    async def close(self) -> None:
        """Finishes the appends and releases the files. Safe to call twice."""


class JournalView(ABC):
    """A journal as it was at one moment, read-only. A collector may use the journal meanwhile."""

    component: str
    """The path of its component."""
    damage: tuple[Damage, ...]
    """What the next opening would find to be missing."""
    disk_bytes: int
    """The size of its files."""

    @abstractmethod
    def records(self) -> Iterator[Record]:
        """The records, oldest first."""

    @abstractmethod
    def read(self, record: Record) -> bytes:
        """The data of a record. Raises `StorageFailed` if it was changed on the disk, or removed meanwhile."""


class KeyValues(ABC):
    """Small values of one component, by key. Survives restarts."""

    @abstractmethod
    async def get(self, key: str) -> bytes | None:
        """The stored value; None if there is none, or if it cannot be read."""

    @abstractmethod
    async def set(self, key: str, value: bytes | None) -> None:
        """Stores a value durably; None deletes it. Raises `StorageFailed`."""

    @abstractmethod
    async def keys(self) -> list[str]:
        """All keys that have a value, sorted."""


class Storage(Extension, ABC):
    """An extension that keeps data for other components."""

    @classmethod
    def look(cls, directory: Path) -> Iterator[JournalView]:
        """The journals in a directory that an extension of this type uses, by name. None if it looks like no such one.

        For `otel-zernel queue`. Changes nothing. Raises `StorageFailed` if the directory cannot be read.
        """
        return iter(())

    @abstractmethod
    async def journal(self, component: str) -> Journal:
        """Opens the journal of a component, named by its path (`exporters::otlp/backup`).

        Raises `CannotStart` if the place cannot be used, for example because another process uses it.
        """

    @abstractmethod
    async def key_values(self, component: str) -> KeyValues:
        """Opens the values of a component, named by its path. Raises `CannotStart` as `journal` does."""
