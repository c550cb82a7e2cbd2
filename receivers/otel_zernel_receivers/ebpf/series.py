"""Reading the series table.

The kernel counts into arrays that are mapped here and never cleared: what is new is the difference, modulo 2^32, to
what was there last time. Nothing is read of series that have not moved.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from otel_zernel.hdr import Layout
from otel_zernel_receivers.ebpf.layout import NUMBER, SLOT
from otel_zernel_receivers.ebpf.libbpf import Map
from otel_zernel_receivers.ebpf.rows import Process, ProcessRows

_AT_ONCE = 64
"""Histograms compared at once: what bounds the memory of a reading."""


@dataclass(frozen=True, slots=True)
class SeriesReading:
    """What one series has counted since the last reading."""

    process: Process
    operation: int
    phase: int
    index: NDArray[np.int64]
    """Counters that have moved, ascending, shape (n,)."""
    counts: NDArray[np.int64]
    """How many calls each counted, shape (n,)."""
    sum_ns: int
    highest_ns: int | None
    """The longest call, where it is the longest of the series so far; else it is not known exactly."""
    bytes: int


class SeriesTable:
    """The series of a loaded object. One thread at a time may use it."""

    def __init__(self, maps: Mapping[str, Map], rows: ProcessRows, layout: Layout) -> None:
        self._rows = rows
        self._free = maps["free_slots"]
        self._slots: NDArray[np.void] = maps["slots"].array(SLOT)
        self._counters: NDArray[np.uint32] = maps["counters"].array(np.dtype("<u4")).reshape(-1, layout.length)
        # Zeros of an untouched page cost no memory, so series that never were cost none.
        self._slots_read = np.zeros_like(self._slots)
        self._counters_read = np.zeros(self._counters.shape, np.uint32)
        self._give_back(reversed(range(len(self._slots))))

    def read(self) -> list[SeriesReading]:
        """What is new in every series."""
        moved = np.flatnonzero(self._slots["count"] != self._slots_read["count"])
        parts = (moved[start : start + _AT_ONCE] for start in range(0, len(moved), _AT_ONCE))
        return [reading for part in parts for reading in self._read(part)]

    def free(self, row: int) -> None:
        """Gives back what the row of an ended process had."""
        numbers = self._rows.take_slots(row)
        self._slots["highest"][numbers] = self._slots_read["highest"][numbers] = 0
        self._give_back(numbers)

    def _give_back(self, numbers: "Iterator[int] | list[int]") -> None:
        for number in numbers:
            self._free.put(None, NUMBER.pack(number))

    def _read(self, numbers: NDArray[np.intp]) -> Iterator[SeriesReading]:
        slots = self._slots[numbers]  # before the counters: a call between the two is read again as its slot moves
        counters = self._counters[numbers]
        slots_before, counters_before = self._slots_read[numbers], self._counters_read[numbers]
        self._slots_read[numbers], self._counters_read[numbers] = slots, counters
        which, index = np.nonzero(counters != counters_before)
        counts = (counters[which, index] - counters_before[which, index]).astype(np.int64)
        ends = np.searchsorted(which, np.arange(len(numbers) + 1))
        for at, (slot, before) in enumerate(zip(slots, slots_before, strict=True)):
            mine = slice(ends[at], ends[at + 1])
            highest = int(slot["highest"])
            yield SeriesReading(
                process=self._rows[slot["row"]],
                operation=int(slot["operation"]),
                phase=int(slot["phase"]),
                index=index[mine],
                counts=counts[mine],
                sum_ns=int(slot["sum"] - before["sum"]),
                highest_ns=highest if highest > before["highest"] else None,
                bytes=int(slot["bytes"] - before["bytes"]),
            )
