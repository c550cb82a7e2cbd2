"""The queues of exporters: in memory, or on a disk. `Delivery` does the waiting."""

from otel_zernel.engine.queues.durable import DurableQueue, UnsafeBatch, open_durable
from otel_zernel.engine.queues.entries import Entry
from otel_zernel.engine.queues.memory import MemoryQueue, memory_share
from otel_zernel.engine.queues.queue import Lease, Queue, QueueOwner
from otel_zernel.engine.queues.requests import Request, by_signal, grouped, join_and_split, joined

__all__ = [
    "DurableQueue",
    "Entry",
    "Lease",
    "MemoryQueue",
    "Queue",
    "QueueOwner",
    "Request",
    "UnsafeBatch",
    "by_signal",
    "grouped",
    "join_and_split",
    "joined",
    "memory_share",
    "open_durable",
]
