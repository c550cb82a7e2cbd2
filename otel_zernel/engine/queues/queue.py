"""The contract of a queue: it leases its entries, and removes an entry only when its lease is acknowledged."""

from abc import ABC, abstractmethod
from asyncio import Future, get_running_loop
from collections import deque
from collections.abc import Collection, Iterable, Iterator
from itertools import islice, takewhile
from typing import Protocol

from otel_zernel.batch import SIGNALS, Batch, ItemCount, Signal
from otel_zernel.clock import Clock, SystemClock
from otel_zernel.delivery_config import SendingQueueConfig
from otel_zernel.engine.queues.entries import SIZE_OF_SIGNAL, Entry, total
from otel_zernel.runtime.memory import memory_limit


class SharedRoom:
    """How much of a limit the entries of each signal take.

    Half of the limit is guaranteed, in equal shares, to the signals that have come or are expected. The rest is first
    come, first served. A single signal has it all. A signal without an entry may take all that is left, so that a batch
    larger than the share fits.
    """

    def __init__(self, limit: int | None) -> None:
        """None for no limit."""
        self.limit = limit
        self.total = 0
        self._expected: frozenset[Signal] = frozenset()
        self._taken: dict[Signal, int] = {}
        self._leaving: set[Signal] = set()
        """The signals whose share ends with their last entry."""

    def expect(self, signals: Iterable[Signal], carried: Collection[Signal] = SIGNALS) -> None:
        """Guarantees a share to these signals before their first entry, in place of those expected before.

        A signal that is not `carried` any more loses its share with its last entry.
        """
        self._expected = frozenset(signals)
        self._leaving = self._taken.keys() - carried
        for signal in tuple(self._leaving):
            self.take(signal, 0)

    def take(self, signal: Signal, amount: int) -> None:
        """An entry takes room, even if it does not fit. A negative amount is free again."""
        self._taken[signal] = self._taken.get(signal, 0) + amount
        self.total += amount
        if signal in self._leaving and not self._taken[signal]:
            self._leaving.remove(signal)
            del self._taken[signal]

    def fits(self, signal: Signal, amount: int) -> bool:
        """Whether this much more of the signal fits, into its share or the rest."""
        if self.limit is None:
            return True
        if self.total + amount > self.limit:
            return False
        if not self._taken.get(signal):
            return True
        known = self._expected | self._taken.keys()
        share = self.limit // 2 // len(known)
        above = {signal_: max(0, taken - share) for signal_, taken in self._taken.items()}
        above[signal] = self._taken[signal] + amount - share
        return above[signal] <= 0 or sum(above.values()) <= self.limit - share * len(known)


_MOST_SKIPPED = 10_000
"""Entries at the front of the queue among which one of another signal is looked for: about 2 ms."""
_MOST_EXPIRED = 100
"""Expired entries that are removed in one turn of the event loop: 2 to 3 ms."""


class QueueOwner(Protocol):
    """The side that leases from a queue."""

    def queue_changed(self) -> None:
        """The queue has a new entry, or more room."""

    def expired(self, counts: ItemCount) -> None:
        """The queue removed an entry that is older than `max_age`."""

    def unreadable(self, counts: ItemCount, error: Exception) -> None:
        """The queue removed an entry that the disk does not return."""


class Lease:
    """An entry that is being delivered. It ends once: when every request acknowledges it, or when it is returned.

    If one request of a split entry was delivered and another is returned, the whole entry counts as undelivered.
    """

    __slots__ = ("_acknowledgements", "_queue", "batch", "entry")

    def __init__(self, queue: "Queue", entry: Entry, batch: Batch) -> None:
        self.batch = batch
        self.entry = entry
        self._queue = queue
        self._acknowledgements = 1

    @property
    def expires_ns(self) -> float:
        """The wall-clock time in ns at which the entry is older than `max_age`."""
        return self._queue.expires_ns(self.entry)

    def divide(self, requests: int) -> None:
        """Makes the lease wait for this many acknowledgements: its batch is spread over so many requests."""
        self._acknowledgements = requests

    def acknowledge(self) -> None:
        """One request with data of this entry is delivered or given up."""
        self._acknowledgements -= 1
        if self._acknowledgements == 0:
            self._queue.remove(self)

    def give_back(self) -> bool:
        """Returns the entry to the queue. The whole batch returns, even if some requests are acknowledged.

        False if it was returned or acknowledged before.
        """
        if self._acknowledgements <= 0:
            return False
        self._acknowledgements = 0
        self._queue.put_back(self)
        return True


class Queue(ABC):
    """Batches that wait for one exporter, oldest first. `size` and `capacity` are in units of `sizer`.

    The signals share the room as `SharedRoom` says.
    """

    def __init__(self, config: SendingQueueConfig, clock: Clock) -> None:
        self.capacity = config.queue_size
        self._room = SharedRoom(config.queue_size)
        self._held = SharedRoom(None)
        """The bytes that are held in memory."""
        self._waiting: deque[Entry] = deque()
        self._clock = clock
        self._size_of = SIZE_OF_SIGNAL[config.sizer]
        self._max_age_ns = round(config.max_age * 1e9)
        self._is_expiring = False
        """Whether the next turn of the event loop removes more expired entries."""
        self._owner: QueueOwner | None = None
        self._newest = 0
        """The number of the newest entry."""

    def attach(self, owner: QueueOwner) -> None:
        """Sets the owner. A queue may get another one after the first has ended."""
        self._owner = owner

    @property
    def size(self) -> int:
        """The size of the entries that are not leased, and of those that are being stored."""
        return self._room.total

    @property
    def bytes(self) -> int:
        """The encoded size of the entries that are held in memory and not leased."""
        return self._held.total

    def expect(self, signals: Collection[Signal], carried: Collection[Signal] = SIGNALS) -> None:
        """Keeps a share of the room for these signals before their first batch comes, and for others if `carried`."""
        self._room.expect(signals, carried)
        self._held.expect(signals, carried)

    def has_room(self, batch: Batch) -> bool:
        """Whether all signals of the batch fit."""
        return self.full_signals(batch).isdisjoint(batch.signals)

    def full_signals(self, batch: Batch | None = None) -> frozenset[Signal]:
        """The signals that do not fit: those of the batch, and of the others not even the smallest batch.

        Every batch fits into an empty queue, even one larger than the capacity.
        """
        if (self._max_age_ns and self._expire()) or not self.size:
            return frozenset()
        sizes = {signal: self._size_of(batch, signal) for signal in batch.signals} if batch else {}
        return frozenset(signal for signal in SIGNALS if not self._fits(signal, sizes.get(signal, 1)))

    def _fits(self, signal: Signal, size: int) -> bool:
        """Whether so much more of the signal fits."""
        return self._room.fits(signal, size)

    @property
    def problem(self) -> str | None:
        """Why the queue accepts nothing although it has room, one sentence."""
        return None

    @abstractmethod
    def put(self, batch: Batch) -> "Future[None] | None":
        """Adds a batch of one signal as the newest entry, even if it does not fit.

        The result is done when the batch is safe: on the disk, or delivered. None if the queue is in memory.
        """

    def take_over(self, former: "Queue") -> None:
        """Adds the entries of a queue that is not used any more, even if they do not fit."""
        for lease in former.take_all():
            self.put(lease.batch)

    def lease(self, without: Collection[Signal] = ()) -> Lease | None:
        """Leases the oldest entry that has none of these signals. None if no entry is available."""
        if self._max_age_ns and self._expire():
            return None
        return self._lease_oldest() if not without or self._bring_forward(without) else None

    def _bring_forward(self, without: Collection[Signal]) -> bool:
        """Puts the oldest entry with none of these signals before all others. False if none is near."""
        places = [SIGNALS.index(signal) for signal in without]
        for place, entry in enumerate(islice(self._waiting, _MOST_SKIPPED)):
            if not any(entry.counts[place] for place in places):
                del self._waiting[place]
                self._waiting.appendleft(entry)
                return True
        return False

    def take_all(self) -> Iterator[Lease]:
        """Leases all entries that are available, in one turn of the event loop."""
        while self._waiting:
            if self._is_expired(self._waiting[0]):
                self._lose_expired(self._pop())
            elif lease := self._lease_oldest():
                yield lease
            else:
                return

    def _lease_oldest(self) -> Lease | None:
        if not self._load_oldest():
            return None
        entry = self._pop()
        batch, entry.batch = entry.batch, None  # the lease holds it
        return Lease(self, entry, batch) if batch else None

    def remove(self, lease: Lease) -> None:
        """Removes a leased entry for good."""
        self._settle(lease.entry)

    def put_back(self, lease: Lease) -> None:
        """Makes a leased entry available again, at its place among those that were returned before."""
        entry = lease.entry
        entry.batch = lease.batch if entry.record is None else None
        self._take(entry, 1)
        older = sum(1 for _ in takewhile(lambda waiting: waiting.number < entry.number, self._waiting))
        self._waiting.insert(older, entry)

    def limit_memory(self, max_bytes: int) -> None:
        """Changes the limit of `bytes`, if the queue has one."""
        return

    def waiting(self) -> ItemCount:
        """The items of the entries that are not leased."""
        return total(self._waiting)

    def stored(self) -> ItemCount:
        """The items of all entries, leased or not, that outlive the process."""
        return ItemCount()

    @property
    def oldest_age(self) -> float:
        """Seconds since the oldest entry that is not leased was queued; 0 if there is none."""
        return max(0.0, (self._clock.time_ns() - self._waiting[0].time_ns) / 1e9) if self._waiting else 0.0

    def __len__(self) -> int:
        """The number of entries that are not leased."""
        return len(self._waiting)

    def expires_ns(self, entry: Entry) -> float:
        """The wall-clock time in ns at which an entry is older than `max_age`."""
        return entry.time_ns + self._max_age_ns if self._max_age_ns else float("inf")

    async def close(self) -> None:
        """Releases the files. The queue must not be used any more."""
        return

    def _append(self, entry: Entry) -> None:
        self._newest += 1
        entry.number = self._newest
        self._waiting.append(entry)
        if entry.batch:
            self._held.take(entry.signal, entry.bytes)

    def _pop(self) -> Entry:
        entry = self._waiting.popleft()
        self._take(entry, -1)
        return entry

    def _take(self, entry: Entry, sign: int) -> None:
        """The entry takes room from now on (1), or no more (-1)."""
        self._room.take(entry.signal, sign * entry.size)
        if entry.batch:
            self._held.take(entry.signal, sign * entry.bytes)

    def _load_oldest(self) -> bool:
        """Makes sure that the oldest entry has its batch. Returns whether there is one."""
        return bool(self._waiting)

    @abstractmethod
    def _settle(self, entry: Entry) -> None:
        """The entry is not waiting, and will never be leased again."""

    def _lose_expired(self, entry: Entry) -> None:
        entry.batch = None
        self._settle(entry)
        if self._owner:
            self._owner.expired(entry.counts)

    def _changed(self) -> None:
        if self._owner:
            self._owner.queue_changed()

    def _is_expired(self, entry: Entry) -> bool:
        return self._max_age_ns > 0 and self._clock.time_ns() > self.expires_ns(entry)

    def _expire(self) -> bool:
        """Removes the oldest entries if they are older than `max_age`, so that they take no room.

        After `_MOST_EXPIRED` entries the event loop gets its turn. Whether others are still to be removed: they take no
        room, and are not leased.
        """
        for _ in range(0 if self._is_expiring else _MOST_EXPIRED):
            if not (self._waiting and self._is_expired(self._waiting[0])):
                return False
            self._lose_expired(self._pop())
        if self._waiting and self._is_expired(self._waiting[0]):
            if not self._is_expiring:
                self._is_expiring = True
                get_running_loop().call_soon(self._expire_more)
            return True
        return False

    def _expire_more(self) -> None:
        self._is_expiring = False
        self._expire()
        self._changed()


_SHARE = 4
"""All queues together hold at most this part of the memory limit: a quarter."""
_UNKNOWN_LIMIT = 1 << 30
"""The assumed memory limit in bytes if it cannot be read."""


def memory_share(queues: int) -> int:
    """The bytes of batches that each of so many queues may hold by default."""
    limit = memory_limit() or _UNKNOWN_LIMIT
    return max(1, limit // _SHARE // max(1, queues))


class MemoryQueue(Queue):
    """Batches in memory. With a limit in bytes it holds them encoded, which takes less memory than parsed messages."""

    def __init__(self, config: SendingQueueConfig, clock: Clock | None = None, max_bytes: int | None = None) -> None:
        """`max_bytes` limits `bytes`, besides the configured size. None for no limit."""
        super().__init__(config, clock or SystemClock())
        self._held.limit = max_bytes

    @property
    def max_bytes(self) -> int | None:
        """The limit of `bytes`; None for no limit."""
        return self._held.limit

    def _fits(self, signal: Signal, size: int) -> bool:
        """The newest batch may exceed the limit of bytes, since its size is known only when encoded."""
        return super()._fits(signal, size) and self._held.fits(signal, 1)

    def limit_memory(self, max_bytes: int) -> None:
        if self.max_bytes is not None:
            self._held.limit = max_bytes
            self._changed()

    def put(self, batch: Batch) -> None:
        self._add(batch, self._clock.time_ns())

    def take_over(self, former: Queue) -> None:
        for lease in former.take_all():
            self._add(lease.batch, lease.entry.time_ns)

    def _add(self, batch: Batch, time_ns: int) -> None:
        held = batch if self.max_bytes is None else _compact(batch)
        held_bytes = 0 if self.max_bytes is None else held.byte_size
        size = sum(self._size_of(held, signal) for signal in held.signals)
        entry = Entry(batch.counts, size, time_ns, held, held_bytes)
        self._room.take(entry.signal, entry.size)
        self._append(entry)
        self._changed()

    def _settle(self, entry: Entry) -> None:
        """Nothing is left to do: the entry is in no list."""


def _compact(batch: Batch) -> Batch:
    """The batch without its parsed messages."""
    return Batch.join(Batch.encoded(signal, batch.bytes_of(signal), batch.count_of(signal)) for signal in batch.signals)
