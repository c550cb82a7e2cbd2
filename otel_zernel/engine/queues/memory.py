"""The queue that lives as long as the process."""

from otel_zernel.batch import Batch
from otel_zernel.clock import Clock, SystemClock
from otel_zernel.delivery_config import SendingQueueConfig
from otel_zernel.engine.queues.queue import Entry, Queue
from otel_zernel.runtime.memory import memory_limit

_SHARE = 4
"""All queues together hold at most this part of the memory limit: a quarter."""
_UNKNOWN_LIMIT = 1 << 30
"""The assumed memory limit in bytes if it cannot be read."""


def memory_share(queues: int, limit: int | None = None) -> int:
    """The bytes of batches that each of so many queues may hold by default.

    `limit` is the memory limit of the process in bytes; None reads it.
    """
    limit = limit or memory_limit() or _UNKNOWN_LIMIT
    return max(1, limit // _SHARE // max(1, queues))


class MemoryQueue(Queue):
    """Batches in memory. With a limit in bytes it holds them encoded, which takes less memory than parsed messages."""

    def __init__(self, config: SendingQueueConfig, clock: Clock | None = None, max_bytes: int | None = None) -> None:
        """`max_bytes` limits `bytes`, besides the configured size. None for no limit."""
        super().__init__(config, clock or SystemClock())
        self.max_bytes = max_bytes

    @property
    def is_full(self) -> bool:
        return super().is_full or self._holds_too_much

    def has_room(self, batch: Batch) -> bool:
        return not self._holds_too_much and super().has_room(batch)

    def limit_memory(self, max_bytes: int) -> None:
        if self.max_bytes is not None:
            self.max_bytes = max_bytes
            self._changed()

    def put(self, batch: Batch) -> None:
        self._add(batch, self._clock.time_ns())

    def take_over(self, former: Queue) -> None:
        for lease in former.take_all():
            self._add(lease.batch, lease.entry.time_ns)

    def _add(self, batch: Batch, time_ns: int) -> None:
        held = batch if self.max_bytes is None else _compact(batch)
        held_bytes = 0 if self.max_bytes is None else held.byte_size
        entry = Entry(batch.counts, self._size_of(held), time_ns, held, held_bytes)
        self.size += entry.size
        self._append(entry)
        self._changed()

    def _settle(self, entry: Entry) -> None:
        """Nothing is left to do: the entry is in no list."""

    @property
    def _holds_too_much(self) -> bool:
        """Whether the limit is reached. The newest batch may exceed it, since its size is known only when encoded."""
        return self.max_bytes is not None and self.bytes >= self.max_bytes


def _compact(batch: Batch) -> Batch:
    """The batch without its parsed messages."""
    signals = batch.signals
    if len(signals) == 1:
        return Batch.of_signal(signals[0], batch.bytes_of(signals[0]), batch.count_of(signals[0]))
    return Batch.join(Batch.of_signal(signal, batch.bytes_of(signal), batch.count_of(signal)) for signal in signals)
