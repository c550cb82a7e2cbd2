"""Reads the ring buffer of events in bulk, by copying new records from shared memory.

This needs no system call and no callback per record. The layout is that of kernel/bpf/ringbuf.c: a page with the
consumer's position, a page with the producer's position, then the data. A record is a header of 8 bytes and an event.
The kernel can map the data twice in a row so that no record is split, but the second mapping would count as memory of
the collector too.
"""

import mmap
import select
import threading
from typing import Any

import numpy as np
from numpy.typing import NDArray

from otel_zernel_receivers.ebpf.kernel.kernel_structs import EVENT, Interval
from otel_zernel_receivers.ebpf.kernel.libbpf import Map

KEPT = 1 << 15
"""Events that `gather` keeps between two readings, about 23 MB.

Further events stay in the kernel, which counts those that find no room.
"""

_DISCARDED = 1 << 30
_RECORD = np.dtype([("length", "<u4"), ("page", "<u4"), ("event", EVENT)])


class Wakeup:
    """A file descriptor that becomes readable when a process ends, which is worth a reading at once.

    The ring buffer's own descriptor is readable whenever it holds any event. Only the end of a process causes an edge,
    which an edge-triggered epoll reports.
    """

    def __init__(self, ring: Map) -> None:
        self._epoll = select.epoll()
        self._epoll.register(ring.fd, select.EPOLLIN | select.EPOLLET)

    def fileno(self) -> int:
        return self._epoll.fileno()

    def reset(self) -> None:
        """Makes it unreadable until the next process ends."""
        self._epoll.poll(0)

    def close(self) -> None:
        self._epoll.close()


class RingBuffer:
    """The events of a loaded object. A thread may gather events while another one reads them."""

    def __init__(self, ring: Map) -> None:
        size = ring.max_entries
        consumer = mmap.mmap(ring.fd, mmap.PAGESIZE)
        readable = mmap.mmap(ring.fd, mmap.PAGESIZE + size, prot=mmap.PROT_READ, offset=mmap.PAGESIZE)
        self._read_until = np.frombuffer(consumer, "<u8", 1)
        self._written_until = np.frombuffer(readable, "<u8", 1)
        self._data = np.frombuffer(readable, np.uint8, offset=mmap.PAGESIZE)
        self._gathered: list[NDArray[Any]] = []
        self._lock = threading.Lock()

    def gather(self) -> bool:
        """Moves new events out of the kernel for the next `read`: all processes share the room there.

        Returns whether a process has ended. Its wakeup is lost if its event is moved before the wakeup is handled.
        """
        with self._lock:
            if sum(map(len, self._gathered)) >= KEPT:
                return False
            events = self._read_new()
            self._gathered.append(events)
        return bool((events["interval"] == Interval.PROCESS).any())

    def read(self) -> NDArray[Any]:
        """The events since the last call, as records of `EVENT`, in the order in which they were reserved."""
        with self._lock:
            gathered, self._gathered = [*self._gathered, self._read_new()], []
        return np.concatenate(gathered)

    def _read_new(self) -> NDArray[Any]:
        start, end = int(self._read_until[0]), int(self._written_until[0])
        records = self._copy(start, (end - start) // _RECORD.itemsize * _RECORD.itemsize).view(_RECORD)
        finished = (records["length"] & ~np.uint32(_DISCARDED)) == EVENT.itemsize
        count = len(records) if finished.all() else int(finished.argmin())  # one is still being written
        kept: NDArray[Any] = records["event"][:count][records["length"][:count] == EVENT.itemsize]
        self._read_until[0] = start + count * _RECORD.itemsize
        return kept

    def _copy(self, start: int, length: int) -> NDArray[np.uint8]:
        begin = start % len(self._data)
        beyond = max(begin + length - len(self._data), 0)
        return np.concatenate((self._data[begin : begin + length], self._data[:beyond]))
