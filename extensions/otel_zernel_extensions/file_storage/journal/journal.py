"""The journal as the event loop sees it: it hands records to its thread, and gets the results of a whole group."""

import asyncio
import logging
import threading
import time
from collections import deque
from collections.abc import Awaitable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from queue import Empty, SimpleQueue
from typing import Final, Self

from otel_zernel.batch import Signal
from otel_zernel.clock import Clock
from otel_zernel.runtime.garbage import collection_deferred
from otel_zernel.runtime.threads import run_in_thread
from otel_zernel.storage import Damage, Journal, Record, StorageFailed
from otel_zernel_extensions.file_storage.disk import Disk
from otel_zernel_extensions.file_storage.journal.limits import JournalLimits
from otel_zernel_extensions.file_storage.journal.recovery import recover
from otel_zernel_extensions.file_storage.journal.segments import StoredRecord
from otel_zernel_extensions.file_storage.journal.writer import JournalWriter, NewRecord

_GATHER: Final = 0.005
"""Seconds for which removals wait for others, or for an append: then one write notes them all."""
_TRIAL: Final = 1.0
"""Seconds between two trials of a disk that refused a record."""

_logger = logging.getLogger("otel_zernel.extensions")


@dataclass(frozen=True, slots=True)
class _Append:
    record: NewRecord
    result: asyncio.Future[Record]


class FileJournal(Journal):
    """A journal in a folder of its own, with a thread of its own."""

    def __init__(
        self,
        writer: JournalWriter,
        stored: dict[int, StoredRecord],
        damage: tuple[Damage, ...],
        clock: Clock,
        name: str,
    ) -> None:
        """Use `open`. `stored` has the stored records by sequence, oldest first. `name` is that of the thread."""
        self.damage = damage
        self._found = stored
        self._writer = writer
        self._clock = clock
        self._loop = asyncio.get_running_loop()
        self._inbox: SimpleQueue[_Append | None] = SimpleQueue()
        """None wakes the thread for something else than an append."""
        self._removed: deque[StoredRecord] = deque()
        self._woken = False
        self._closing = False
        self._trial_at = 0.0
        self._pause = 0.0
        self._thread = threading.Thread(target=self._work, name=name, daemon=True)

    @classmethod
    async def open(
        cls, folder: Path, clock: Clock, limits: JournalLimits | None = None, disk: Disk | None = None
    ) -> Self:
        """Opens or creates the journal. Raises `OSError` and `UnknownVersion`."""
        with collection_deferred():
            prepared = await run_in_thread(lambda: _prepare(folder, disk or Disk(), limits or JournalLimits()))
        writer, stored, damage = prepared
        journal = cls(writer, stored, damage, clock, f"journal {folder.stem}")
        journal._thread.start()
        return journal

    def append(self, signal: Signal, data: bytes, items: int) -> Awaitable[Record]:
        result: asyncio.Future[Record] = self._loop.create_future()
        if self._closing:
            result.set_exception(StorageFailed("the storage is closed"))
        else:
            self._inbox.put(_Append(NewRecord(signal, data, items, self._clock.time_ns()), result))
        return result

    def read(self, record: Record) -> bytes:
        return _stored(record).read()

    def remove(self, record: Record) -> None:
        self._found.pop(record.sequence, None)
        self._removed.append(_stored(record))
        self._wake()

    def records(self) -> Iterator[Record]:
        return iter(list(self._found.values()))

    @property
    def problem(self) -> str | None:
        return self._writer.problem

    async def close(self) -> None:
        self._closing = True
        self._inbox.put(None)
        await run_in_thread(self._thread.join)

    def _wake(self) -> None:
        if not self._woken:
            self._woken = True
            self._inbox.put(None)

    def _work(self) -> None:
        while not (self._closing and self._inbox.empty()):
            appends = self._next_group()
            self._woken = False
            try:
                self._do(appends)
            except Exception as error:
                _logger.exception("the journal failed: %s", error)
                self._answer(appends, [StorageFailed(f"the journal failed: {error}")] * len(appends))
        self._acknowledge()
        self._writer.close()

    def _next_group(self) -> list[_Append]:
        """Waits for work and takes all that is there."""
        appends: list[_Append] = []
        try:
            appends += filter(None, [self._inbox.get(timeout=_TRIAL if self._writer.problem else None)])
            if not appends and not self._closing:
                appends += filter(None, [self._inbox.get(timeout=_GATHER)])
            if self._pause:
                time.sleep(self._pause)
            while True:
                appends += filter(None, [self._inbox.get_nowait()])
        except Empty:
            return appends

    def _do(self, appends: list[_Append]) -> None:
        self._acknowledge()
        if appends:
            begun = time.perf_counter()
            results = self._writer.append([append.record for append in appends])
            self._pause = min((time.perf_counter() - begun) / 4, 0.001) if len(appends) > 1 else 0.0
            self._answer(appends, results)
        elif self._writer.problem and self._clock.monotonic() >= self._trial_at:
            self._writer.try_storage()
            self._trial_at = self._clock.monotonic() + _TRIAL

    def _acknowledge(self) -> None:
        if self._removed:
            self._writer.acknowledge([self._removed.popleft() for _ in range(len(self._removed))])

    def _answer(self, appends: Sequence[_Append], results: Sequence[StoredRecord | StorageFailed]) -> None:
        try:
            self._loop.call_soon_threadsafe(self._resolve, appends, results)
        except RuntimeError:  # the event loop is closed: nobody waits any more
            return

    def _resolve(self, appends: Sequence[_Append], results: Sequence[StoredRecord | StorageFailed]) -> None:
        for append, result in zip(appends, results, strict=True):
            if append.result.done():  # cancelled
                if isinstance(result, StoredRecord):
                    self.remove(result)
            elif isinstance(result, StorageFailed):
                append.result.set_exception(result)
            else:
                append.result.set_result(result)


def _prepare(
    folder: Path, disk: Disk, limits: JournalLimits
) -> tuple[JournalWriter, dict[int, StoredRecord], tuple[Damage, ...]]:
    """Blocks while it reads all segments."""
    recovered = recover(folder, disk)
    writer = JournalWriter(folder, recovered, disk, limits)
    writer.start(recovered)
    return writer, {record.sequence: record for record in recovered.records}, recovered.damage


def _stored(record: Record) -> StoredRecord:
    if not isinstance(record, StoredRecord):
        raise TypeError("the record is of another journal")
    return record
