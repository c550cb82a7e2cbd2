"""The queue on a disk: a batch is safe when it is stored there, and stays there until it is delivered or given up.

Stored batches are read back in a thread, a group at a time, before they are leased.
"""

import asyncio
import threading
from collections import deque
from collections.abc import Callable, Collection, Iterable
from dataclasses import dataclass
from functools import partial
from itertools import takewhile

from otel_zernel.batch import ALL_SIGNALS, Batch, ItemCount, Signal
from otel_zernel.component import Context
from otel_zernel.delivery_config import SendingQueueConfig
from otel_zernel.engine.lifetime import cancel_and_wait
from otel_zernel.engine.queues.entries import Entry, counts_of, total
from otel_zernel.engine.queues.queue import Lease, Queue
from otel_zernel.errors import CannotStart
from otel_zernel.runtime.garbage import collection_deferred
from otel_zernel.runtime.threads import compute, run_in_thread
from otel_zernel.storage import Damage, DataLost, Journal, Record, Storage, StorageFailed, TooLarge

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
            batches.append(Batch.encoded(record.signal, journal.read(record), record.items))
        except DataLost as error:
            batches.append(error)
        except Exception as error:  # noqa: BLE001  # a storage's bug is no reason to stop trying
            return batches, error
    return batches, None


CACHE = 64 << 20
"""Bytes of the newest batches that are also held in memory, at most. The others are read from the disk."""
RETRY = 1.0
"""Seconds between two attempts to store a batch after the disk has failed."""


@dataclass(frozen=True, slots=True, eq=False)
class UnsafeBatch:
    """A batch that a closed queue could not store."""

    batch: Batch
    safe: asyncio.Future[None]
    """The source waits for it."""

    def follow(self, again: asyncio.Future[None] | None) -> None:
        """The batch was put into another queue. `again` is the result of that."""
        if again is None:
            self._end(False)
        else:
            again.add_done_callback(lambda done: self._end(done.cancelled()))

    def _end(self, refused: bool) -> None:
        if refused:
            self.safe.cancel()
        elif not self.safe.done():
            self.safe.set_result(None)


class DurableQueue(Queue):
    """Batches in a journal. The newest are also held in memory, up to a limit; the others are read when leased.

    If the disk fails, the batches that it did not take stay in memory. They are delivered as any other, and stored as
    soon as the disk works again; their sources wait for either. Meanwhile the queue has no room.
    """

    def __init__(self, config: SendingQueueConfig, journal: Journal, context: Context, max_bytes: int) -> None:
        """`context` is the exporter's. `max_bytes` limits the batches that are held in memory although they are
        stored, and `CACHE` as well."""
        super().__init__(config, context.clock)
        self._config = config
        self._journal = journal
        self._logger = context.logger
        self._report = context.report
        self._max_bytes = min(max_bytes, CACHE)
        self._cached: deque[Entry] = deque()
        """The newest entries, oldest first. Those that wait in memory are among them."""
        self._unstored: dict[Entry, Batch] = {}
        """The entries that the disk did not take, oldest first."""
        self._unsafe: dict[Entry, asyncio.Future[None]] = {}
        """Entries that are neither stored nor settled, and the futures that their sources wait for."""
        self._storing_again: asyncio.Task[None] | None = None
        self._read_ahead = ReadAhead(journal, context, self._changed)
        self._stored = ItemCount()
        """The items of the entries that are on the disk, leased or not."""

    async def restore(self) -> None:
        """Adds the batches that the journal has. To be called once, before the queue is used.

        There may be a million of them, so a thread does it, and a cancellation ends it early.
        """
        cancelled = threading.Event()
        await compute(lambda: self._restore(cancelled), cancelled.set)

    def _restore(self, cancelled: threading.Event) -> None:
        with collection_deferred():
            for record in takewhile(lambda _: not cancelled.is_set(), self._journal.records()):
                entry = self._entry_of(record)
                self._room.take(record.signal, entry.size)
                self._stored = self._stored.plus(entry.counts)
                self._append(entry)

    @property
    def problem(self) -> str | None:
        if self._unstored:
            return self._journal.problem or "the last batch could not be stored"
        return None

    def full_signals(self, batch: Batch | None = None) -> frozenset[Signal]:
        return ALL_SIGNALS if self._unstored or self._holds_too_much else super().full_signals(batch)

    @property
    def _holds_too_much(self) -> bool:
        """Whether the batches that the disk does not have take too much memory. All others are freed in time."""
        return self.bytes > self._max_bytes

    def limit_memory(self, max_bytes: int) -> None:
        self._max_bytes = min(max_bytes, CACHE)
        self._shed()
        self._changed()

    def put(self, batch: Batch) -> asyncio.Future[None]:
        (signal,) = batch.signals
        held = Batch.encoded(signal, batch.bytes_of(signal), batch.count_of(signal))
        entry = Entry(batch.counts, self._size_of(held, signal), self._clock.time_ns(), held, held.byte_size)
        self._room.take(signal, entry.size)
        self._unsafe[entry] = safe = asyncio.get_running_loop().create_future()
        appending = asyncio.ensure_future(self._journal.append(signal, held.bytes_of(signal), held.item_count))
        appending.add_done_callback(partial(self._appended, entry, held))
        return safe

    def stored(self) -> ItemCount:
        return self._stored

    def unsafe(self) -> ItemCount:
        """The items that neither the disk nor the exporter has."""
        return total(self._unsafe)

    async def close(self) -> None:
        """Finishes the appends and closes the journal. `unsafe_batches` has those that are not stored."""
        self._stop_storing()
        await self._read_ahead.close()
        await self._journal.close()
        await asyncio.sleep(0)  # the callbacks of the last appends
        self._stop_storing()

    def _stop_storing(self) -> None:
        if self._storing_again:
            self._storing_again.cancel()

    def unsafe_batches(self) -> list[UnsafeBatch]:
        """The batches that neither the disk nor the exporter has, oldest first, when the queue is closed."""
        unsafe = []
        for entry, safe in self._unsafe.items():
            if batch := entry.batch or self._unstored.get(entry):
                unsafe.append(UnsafeBatch(batch, safe))
            else:  # an exporter that hangs still has it
                safe.cancel()
        return unsafe

    def _entry_of(self, record: Record) -> Entry:
        sizes = {"requests": 1, "items": record.items, "bytes": record.size}
        counts = counts_of(record.signal, record.items)
        return Entry(counts, sizes[self._config.sizer], record.time_ns, None, record.size, record)

    def _appended(self, entry: Entry, batch: Batch, appending: "asyncio.Future[Record]") -> None:
        """The journal has taken the entry or failed. From now on it is delivered."""
        if appending.cancelled():  # the event loop ends
            return
        if error := appending.exception():
            self._not_stored(entry, batch, error)
        else:
            self._store(entry, appending.result())
        self._append(entry)
        self._cached.append(entry)
        self._shed()
        self._changed()

    def _store(self, entry: Entry, record: Record) -> None:
        entry.record, entry.time_ns = record, record.time_ns
        self._stored = self._stored.plus(entry.counts)
        self._make_safe(entry)

    def _make_safe(self, entry: Entry) -> None:
        safe = self._unsafe.pop(entry, None)
        if safe and not safe.done():
            safe.set_result(None)

    def _not_stored(self, entry: Entry, batch: Batch, error: BaseException) -> None:
        if isinstance(error, TooLarge):  # another attempt would fail too: it is safe only when it is delivered
            self._logger.warning("A batch cannot be stored; its source waits until it is delivered: %s", error)
            return
        self._unstored[entry] = batch
        if self._storing_again is None:
            self._logger.error(
                "The queue's storage failed; new batches are refused until it works again: %s",
                error,
                exc_info=_bug(error),
            )
            self._report("the queue's storage failed")
            self._storing_again = asyncio.create_task(self._store_again(), name="storing again")

    async def _store_again(self) -> None:
        """Stores what the disk did not take, oldest first, until nothing is left of it."""
        while self._unstored:
            await self._clock.sleep(RETRY)
            while self._unstored and await self._try_again(next(iter(self._unstored))):
                pass
        self._storing_again = None
        self._report(None)
        self._logger.info("The queue's storage works again.")
        self._changed()

    async def _try_again(self, entry: Entry) -> bool:
        batch = self._unstored[entry]
        (signal,) = batch.signals
        try:
            record = await self._journal.append(signal, batch.bytes_of(signal), batch.item_count)
        except Exception as error:  # noqa: BLE001  # a storage's bug is no reason to stop trying
            self._logger.debug("The batch is still not stored: %s", error)
            return False
        if self._unstored.pop(entry, None) is None:  # delivered meanwhile
            self._journal.remove(record)
        else:
            self._store(entry, record)
            self._shed()
        return True

    def lease(self, without: Collection[Signal] = ()) -> Lease | None:
        lease = super().lease(without)
        self._forget_gone()
        return lease

    def _load_oldest(self) -> bool:
        """Whether the oldest entry is in memory. If not, it is being read. Entries whose data are gone are counted."""
        while self._waiting:
            entry = self._waiting[0]
            if entry.batch:
                return True
            match self._read_ahead.take(entry):
                case None:
                    self._read_ahead.begin(takewhile(lambda entry: not entry.batch, self._waiting))
                    return False
                case DataLost() as error:
                    self._lose_unreadable(self._pop(), error)
                case batch:
                    entry.batch = batch
                    self._held.take(entry.signal, entry.bytes)
        return False

    def _lose_unreadable(self, entry: Entry, error: DataLost) -> None:
        self._settle(entry)
        if self._owner:
            self._owner.unreadable(entry.counts, error)

    def _settle(self, entry: Entry) -> None:
        self._unstored.pop(entry, None)
        self._make_safe(entry)
        self._read_ahead.forget(entry)
        if entry.record:
            self._stored = self._stored.minus(entry.counts)
            self._journal.remove(entry.record)

    def _forget_gone(self) -> None:
        """Forgets the oldest cached entries that hold no batch any more: they were leased or have expired."""
        while self._cached and self._cached[0].batch is None:
            self._cached.popleft()
        if len(self._cached) > 2 * len(self._waiting) + 100:  # newer ones were leased before older ones
            self._cached = deque(entry for entry in self._cached if entry.batch)

    def _shed(self) -> None:
        """Frees the memory of the oldest entries in memory that the disk has, down to the limit."""
        self._forget_gone()
        only_here: list[Entry] = []
        while self.bytes > self._max_bytes and self._cached:
            entry = self._cached.popleft()
            if entry.batch and entry.record:
                entry.batch = None
                self._held.take(entry.signal, -entry.bytes)
            elif entry.batch:
                only_here.append(entry)
        self._cached.extendleft(reversed(only_here))


def _bug(error: BaseException) -> BaseException | None:
    return None if isinstance(error, StorageFailed) else error


async def open_durable(context: Context, config: SendingQueueConfig, max_bytes: int | None) -> DurableQueue:
    """Opens the journal of an exporter in the storage extension that its queue names. Raises `CannotStart`."""
    id_ = config.storage or ""
    storage = context.extension(id_)
    if not isinstance(storage, Storage):
        raise CannotStart(f"{context.path}: extension {id_} stores no data; name a storage extension")
    journal = await storage.journal(context.path)
    for damage in journal.damage:
        _log_damage(damage, context)
    queue = DurableQueue(config, journal, context, max_bytes or CACHE)
    try:
        await queue.restore()
    except BaseException:
        await queue.close()
        raise
    if items := queue.stored().total:
        context.logger.info("The queue on the disk has %d items of an earlier run; they are delivered first.", items)
    return queue


def _log_damage(damage: Damage, context: Context) -> None:
    if damage.records:
        context.logger.error("The queue's storage is damaged: %s", damage)
        context.drop(damage.items, "damaged")
    else:
        context.logger.info("The queue's storage was repaired; no accepted batch is missing: %s", damage)
