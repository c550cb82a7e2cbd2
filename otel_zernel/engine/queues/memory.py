"""The queue that lives as long as the process."""

from otel_zernel.batch import Batch, Signal
from otel_zernel.clock import Clock, SystemClock
from otel_zernel.delivery_config import SendingQueueConfig
from otel_zernel.engine.queues.entries import Entry
from otel_zernel.engine.queues.queue import Queue
from otel_zernel.runtime.memory import memory_limit

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
