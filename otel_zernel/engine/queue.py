"""The queue of an exporter: it leases its entries, and removes an entry only when its lease is acknowledged.

All methods are synchronous: `Delivery` does the waiting.
"""

from abc import ABC, abstractmethod
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import reduce

from otel_zernel.batch import Batch, ItemCount
from otel_zernel.delivery_config import SendingQueueConfig, Sizer

_SIZERS: dict[Sizer, Callable[[Batch], int]] = {
    "requests": lambda batch: 1,
    "items": lambda batch: batch.item_count,
    "bytes": lambda batch: batch.byte_size,
}


class Queue(ABC):
    """Batches that wait for one exporter, oldest first. `size` and `capacity` are in units of `sizer`."""

    size: int
    """The size of the entries that are not leased."""
    capacity: int

    @property
    def is_full(self) -> bool:
        """Whether not even the smallest batch fits."""
        return self.size >= self.capacity

    @abstractmethod
    def has_room(self, batch: Batch) -> bool:
        """Whether the batch fits. Every batch fits into an empty queue, even one larger than the capacity."""

    @abstractmethod
    def put(self, batch: Batch) -> None:
        """Adds a batch as the newest entry, even if it does not fit."""

    @abstractmethod
    def lease(self) -> "Lease":
        """Leases the oldest entry. Raises `IndexError` if no entry is available."""

    @abstractmethod
    def remove(self, lease: "Lease") -> None:
        """Removes a leased entry for good."""

    @abstractmethod
    def put_back(self, lease: "Lease") -> None:
        """Makes a leased entry available again, as the oldest one."""

    @abstractmethod
    def waiting(self) -> ItemCount:
        """The items of the entries that are not leased."""

    @abstractmethod
    def __len__(self) -> int:
        """The number of entries that are not leased."""


class Lease:
    """An entry that is being delivered. It ends once: when every request acknowledges it, or when it is returned.

    If one request of a split entry was delivered and another is returned, the whole entry counts as undelivered.
    """

    __slots__ = ("_acknowledgements", "_queue", "batch")

    def __init__(self, queue: Queue, batch: Batch) -> None:
        self.batch = batch
        self._queue = queue
        self._acknowledgements = 1

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
        if self._acknowledgements == 0:
            return False
        self._acknowledgements = 0
        self._queue.put_back(self)
        return True


@dataclass(frozen=True, slots=True, eq=False)
class Request:
    """A batch as the exporter gets it, with the leases of the entries that its data come from."""

    batch: Batch
    leases: tuple[Lease, ...] = ()

    def acknowledge(self) -> None:
        """The batch is delivered or given up."""
        for lease in self.leases:
            lease.acknowledge()

    def give_back(self) -> int:
        """The batch is not delivered: its entries return to the queue. Returns how many do."""
        return sum(lease.give_back() for lease in reversed(self.leases))


def join_and_split(leased: Sequence[Request], max_size: int) -> list[Request]:
    """The data of all requests as one, split into requests of at most `max_size` items (0: no limit)."""
    joined = Batch.join([request.batch for request in leased])
    batches = (list(joined.split(max_size)) if max_size else []) or [joined]
    leases = tuple(lease for request in leased for lease in request.leases)
    for lease in leases:
        lease.divide(len(batches))
    return [Request(batch, leases) for batch in batches]


class MemoryQueue(Queue):
    """A queue that lives as long as the process."""

    def __init__(self, config: SendingQueueConfig) -> None:
        self.capacity = config.queue_size
        self.size = 0
        self._size_of = _SIZERS[config.sizer]
        self._waiting: deque[Batch] = deque()

    def has_room(self, batch: Batch) -> bool:
        return not self._waiting or self.size + self._size_of(batch) <= self.capacity

    def put(self, batch: Batch) -> None:
        self._waiting.append(batch)
        self.size += self._size_of(batch)

    def lease(self) -> Lease:
        batch = self._waiting.popleft()
        self.size -= self._size_of(batch)
        return Lease(self, batch)

    def remove(self, lease: Lease) -> None:
        """Nothing is left to do: a leased batch is in no list."""

    def put_back(self, lease: Lease) -> None:
        self._waiting.appendleft(lease.batch)
        self.size += self._size_of(lease.batch)

    def waiting(self) -> ItemCount:
        return reduce(ItemCount.plus, (batch.counts for batch in self._waiting), ItemCount())

    def __len__(self) -> int:
        return len(self._waiting)
