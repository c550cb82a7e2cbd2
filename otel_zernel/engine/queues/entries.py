"""The entries of queues, and their sizes."""

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from functools import reduce

from otel_zernel.batch import SIGNALS, Batch, ItemCount, Signal
from otel_zernel.delivery_config import Sizer
from otel_zernel.storage import Record

SIZE_OF_SIGNAL: dict[Sizer, Callable[[Batch, Signal], int]] = {
    "requests": lambda batch, signal: 1,
    "items": lambda batch, signal: batch.count_of(signal),
    "bytes": lambda batch, signal: len(batch.bytes_of(signal)),
}


@dataclass(slots=True, eq=False)
class Entry:
    """One queued batch."""

    counts: ItemCount
    size: int
    """In units of the queue's `sizer`."""
    time_ns: int
    """When it was queued: wall clock, ns."""
    batch: Batch | None
    """None if its data is only on the disk."""
    bytes: int = 0
    """The encoded size. 0 in a queue that does not measure bytes."""
    record: Record | None = None
    """Its place on the disk."""
    number: int = 0
    """Its place in the order of the queue."""

    @property
    def signal(self) -> Signal:
        """The signal of the batch."""
        return next((signal for signal, count in zip(SIGNALS, self.counts, strict=True) if count), SIGNALS[0])


def total(entries: Iterable[Entry]) -> ItemCount:
    """The items of all entries."""
    return reduce(ItemCount.plus, (entry.counts for entry in entries), ItemCount())


def counts_of(signal: Signal, items: int) -> ItemCount:
    """The counts of a batch of one signal."""
    return ItemCount(*(items if of_signal == signal else 0 for of_signal in SIGNALS))
