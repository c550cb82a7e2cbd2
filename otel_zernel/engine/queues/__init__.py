"""The queues of exporters: in memory, or on a disk. `Delivery` does the waiting."""

from otel_zernel.engine.queues.durable import DurableQueue as DurableQueue
from otel_zernel.engine.queues.durable import UnsafeBatch as UnsafeBatch
from otel_zernel.engine.queues.durable import open_durable as open_durable
from otel_zernel.engine.queues.entries import Entry as Entry
from otel_zernel.engine.queues.queue import Lease as Lease
from otel_zernel.engine.queues.queue import MemoryQueue as MemoryQueue
from otel_zernel.engine.queues.queue import Queue as Queue
from otel_zernel.engine.queues.queue import QueueOwner as QueueOwner
from otel_zernel.engine.queues.queue import memory_share as memory_share
from otel_zernel.engine.queues.requests import Request as Request
from otel_zernel.engine.queues.requests import by_signal as by_signal
from otel_zernel.engine.queues.requests import grouped as grouped
from otel_zernel.engine.queues.requests import join_and_split as join_and_split
from otel_zernel.engine.queues.requests import joined as joined
from otel_zernel.engine.queues.requests import size_in as size_in
