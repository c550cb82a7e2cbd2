"""Reading stored batches back from the disk: in a thread, a group at a time, before they are leased."""

import asyncio
from collections.abc import Callable, Iterable
from functools import partial

from otel_zernel.batch import Batch
from otel_zernel.component import Context
from otel_zernel.engine.lifetime import cancel_and_wait
from otel_zernel.engine.queues.entries import Entry
from otel_zernel.runtime.threads import run_in_thread
from otel_zernel.storage import DataLost, Journal, Record, StorageFailed

RETRY = 1.0
"""Seconds between two attempts to read after the disk has failed."""
_MOST_ENTRIES = 256
_MOST_BYTES = 1 << 20
"""A group ends with the entry that reaches one of these: a change to another thread costs as much as reading 10 kB."""


class ReadAhead:
    """The batches of entries that are next in a queue and only on the disk."""

    def __init__(self, journal: Journal, context: Context, changed: Callable[[], None]) -> None:
        """`changed` is called when there is something to `take`, or to `begin` again."""
        self._journal = journal
        self._clock = context.clock
        self._logger = context.logger
        self._changed = changed
        self._wanted: set[Entry] = set()
        """The entries that are being read."""
        self._found: dict[Entry, Batch | DataLost] = {}
        self._reading: asyncio.Task[None] | None = None

    def take(self, entry: Entry) -> Batch | DataLost | None:
        """The batch of an entry, or the reason why it is gone for good. None if it is not read yet."""
        return self._found.pop(entry, None)

    def forget(self, entry: Entry) -> None:
        """The entry has left the queue."""
        self._wanted.discard(entry)
        self._found.pop(entry, None)

    def begin(self, entries: Iterable[Entry]) -> None:
        """Starts to read the first of the entries, unless a group is being read. They must be on the disk."""
        if self._reading is None:
            most = 1 if len(self._found) >= _MOST_ENTRIES else _MOST_ENTRIES
            group = _group((entry for entry in entries if entry not in self._found), most)
            self._wanted = set(group)
            self._reading = asyncio.create_task(self._read(group), name="reading the queue")

    async def close(self) -> None:
        """Ends the reading."""
        if self._reading:
            await cancel_and_wait([self._reading])

    async def _read(self, group: list[Entry]) -> None:
        records = [entry.record for entry in group if entry.record]
        batches, error = await self._read_in_thread(records)
        for entry, batch in zip(group, batches, strict=False):  # shorter after an error
            if entry in self._wanted:
                self._found[entry] = batch
        if error and not batches:
            self._logger.error(
                "The queue's storage cannot be read now; trying again in %g s: %s",
                RETRY,
                error,
                exc_info=None if isinstance(error, StorageFailed) else error,
            )
            await self._clock.sleep(RETRY)
        self._reading = None
        self._changed()

    async def _read_in_thread(self, records: list[Record]) -> tuple[list[Batch | DataLost], Exception | None]:
        try:
            return await run_in_thread(partial(_read_all, self._journal, records))
        except Exception as error:  # noqa: BLE001  # no thread can start, for example because of a limit of processes
            return [], error


def _group(entries: Iterable[Entry], most: int) -> list[Entry]:
    group: list[Entry] = []
    size = 0
    for entry in entries:
        group.append(entry)
        size += entry.bytes
        if size >= _MOST_BYTES or len(group) >= most:
            break
    return group


def _read_all(journal: Journal, records: list[Record]) -> tuple[list[Batch | DataLost], Exception | None]:
    """The batches up to the first record that cannot be read now, and its error. Blocks."""
    batches: list[Batch | DataLost] = []
    for record in records:
        try:
            batches.append(Batch.of_signal(record.signal, journal.read(record), record.items))
        except DataLost as error:
            batches.append(error)
        except Exception as error:  # noqa: BLE001  # a storage's bug is no reason to stop trying
            return batches, error
    return batches, None
