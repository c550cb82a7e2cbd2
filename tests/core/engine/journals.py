"""A storage in memory, which outlives its journals and fails on demand."""

import asyncio
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field

from otel_zernel.batch import Signal
from otel_zernel.component import ComponentConfig, Context
from otel_zernel.storage import Damage, DataLost, Journal, KeyValues, Record, Storage, StorageFailed, TooLarge
from otel_zernel.testing import make_context


@dataclass
class Disk:
    """The data of one journal. `full` makes appends fail, `unreadable` reads; `broken` records are lost."""

    data: dict[int, tuple[Record, bytes]] = field(default_factory=dict)
    last: int = 0
    full: bool = False
    broken: set[int] = field(default_factory=set)
    unreadable: bool = False
    largest: int = 1 << 30
    """The size in bytes of the largest batch that it takes."""
    gate: asyncio.Event | None = None
    """Appends wait for it."""
    reads: int = 0
    read_gate: threading.Event | None = None
    """Reads block until it is set."""
    slowness: float = 0.0
    """Seconds for which the listing of each record blocks."""
    listed: int = 0
    damage: tuple[Damage, ...] = ()


class MemoryJournal(Journal):
    """A journal on a `Disk`."""

    def __init__(self, disk: Disk, time_ns: Callable[[], int] = lambda: 0) -> None:
        self.disk = disk
        self.damage = disk.damage
        self.closed = False
        self._time_ns = time_ns
        self._problem: str | None = None

    async def append(self, signal: Signal, data: bytes, items: int) -> Record:
        if self.disk.gate:
            await self.disk.gate.wait()
        await asyncio.sleep(0)
        if len(data) > self.disk.largest:
            raise TooLarge("larger than the storage allows")
        if self.disk.full:
            self._problem = "no space left on device"
            raise StorageFailed(self._problem)
        self._problem = None
        self.disk.last += 1
        record = Record(self.disk.last, signal, items, len(data), self._time_ns())
        self.disk.data[record.sequence] = (record, data)
        return record

    def read(self, record: Record) -> bytes:
        self.disk.reads += 1
        if self.disk.read_gate and not self.disk.read_gate.wait(10):
            raise AssertionError("the event loop waits for this read")
        if record.sequence in self.disk.broken:
            raise DataLost("wrong checksum")
        if self.disk.unreadable:
            raise StorageFailed("too many open files")
        return self.disk.data[record.sequence][1]

    def remove(self, record: Record) -> None:
        del self.disk.data[record.sequence]

    def records(self) -> Iterator[Record]:
        for record, _ in list(self.disk.data.values()):
            time.sleep(self.disk.slowness)
            self.disk.listed += 1
            yield record

    @property
    def problem(self) -> str | None:
        return self._problem

    async def close(self) -> None:
        self.closed = True


class MemoryValues(KeyValues):
    """The values of one component. `fails` makes every `set` fail."""

    def __init__(self) -> None:
        self.stored: dict[str, bytes] = {}
        self.fails = False

    async def get(self, key: str) -> bytes | None:
        return self.stored.get(key)

    async def set(self, key: str, value: bytes | None) -> None:
        if self.fails:
            raise StorageFailed("the disk is full")
        if value is None:
            self.stored.pop(key, None)
        else:
            self.stored[key] = value

    async def keys(self) -> list[str]:
        return sorted(self.stored)


class MemoryStorage(Storage):
    """A storage extension with a `Disk`, and values, for each component."""

    def __init__(self, config: ComponentConfig | None = None, context: Context | None = None) -> None:
        super().__init__(config or ComponentConfig(), context or make_context("extensions", "storage"))
        self.disks: dict[str, Disk] = {}
        self.journals: list[MemoryJournal] = []
        self.values: dict[str, MemoryValues] = {}

    def disk(self, component: str) -> Disk:
        return self.disks.setdefault(component, Disk())

    async def journal(self, component: str) -> MemoryJournal:
        self.journals.append(MemoryJournal(self.disk(component), self.context.clock.time_ns))
        return self.journals[-1]

    async def key_values(self, component: str) -> MemoryValues:
        return self.values.setdefault(component, MemoryValues())
