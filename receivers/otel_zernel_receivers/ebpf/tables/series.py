"""Reads the series table.

The kernel counts into arrays that are mapped here and never clears them. A reading is the difference from the previous
one, modulo 2^32. Only series whose count has changed are read.
"""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from itertools import pairwise
from typing import Any, TypeVar

import numpy as np
from numpy.typing import NDArray

from otel_zernel_libraries.histograms.hdr import HdrLayout, Ints
from otel_zernel_receivers.ebpf.kernel.kernel_structs import NUMBER, SLOT
from otel_zernel_receivers.ebpf.kernel.libbpf import Map
from otel_zernel_receivers.ebpf.tables.process_table import ProcessRows, WatchedProcess

T = TypeVar("T", bound=np.integer[Any])

SeriesKey = tuple[WatchedProcess, int, int]
"""The process, the operation and the phase of a series."""
Totals = NDArray[np.uint64]
"""The calls of each slot, shape (slots,)."""

_AT_ONCE = 1 << 16
"""Counters compared at once, 0.3 MB: they fit into a core's cache, and limit the memory of a reading."""


@dataclass(frozen=True, slots=True)
class SeriesReading:
    """The calls that one series has counted since the last reading."""

    process: WatchedProcess
    operation: int
    phase: int
    index: Ints
    """The histogram's counters that have changed, ascending, shape (n,)."""
    counts: Ints
    """The calls that each of them counted, shape (n,)."""
    sum_ns: int
    highest_ns: int | None
    """The longest call, if it is the longest of the series so far. None otherwise: it is not known exactly."""
    bytes: int

    @property
    def key(self) -> SeriesKey:
        """The key of the series."""
        return self.process, self.operation, self.phase


class KernelSeriesTable:
    """The series of all processes. One thread at a time may use it."""

    def __init__(self, maps: Mapping[str, Map], rows: ProcessRows, layout: HdrLayout) -> None:
        self._rows = rows
        self._free = maps["free_slots"]
        self._slots: NDArray[np.void] = maps["slots"].array(SLOT)
        self._counters = _Counters(maps["counters"], len(self._slots), layout)
        self._slots_read = np.zeros_like(self._slots)
        self._mark_free(reversed(range(len(self._slots))))

    def read(self) -> list[SeriesReading]:
        """The new calls of every series that has any."""
        moved = np.flatnonzero(self._slots["count"] != self._slots_read["count"])
        at_once = self._counters.at_once
        parts = (moved[start : start + at_once] for start in range(0, len(moved), at_once))
        return [reading for part in parts for reading in self._read(part)]

    def totals(self) -> Totals:
        """The calls that each slot has counted since loading."""
        return self._slots["count"].copy()

    def calls(self, since: Totals, until: Totals) -> dict[SeriesKey, int]:
        """The calls that each series counted between two calls of `totals`. No row may be freed in between."""
        moved = np.flatnonzero(until != since)
        slots = self._slots[moved]
        processes = self._rows.processes(slots["row"])
        keys = zip(processes, slots["operation"].tolist(), slots["phase"].tolist(), strict=True)
        return dict(zip(keys, (until[moved] - since[moved]).tolist(), strict=True))

    def free(self, row: int) -> None:
        """Frees the slots of an ended process's row."""
        numbers = self._rows.remove_slots(row)
        self._slots["highest"][numbers] = self._slots_read["highest"][numbers] = 0
        self._counters.forget(numbers)
        self._mark_free(numbers)

    def _mark_free(self, numbers: Iterable[int]) -> None:
        for number in numbers:
            self._free.put(None, NUMBER.pack(number))

    def _read(self, numbers: NDArray[np.intp]) -> Iterator[SeriesReading]:
        slots = self._slots[numbers]  # before the counters: a call between the two is read again as its slot moves
        before = self._slots_read[numbers]
        self._slots_read[numbers] = slots
        index, counts = self._counters.new(numbers)
        highest = zip(slots["highest"].tolist(), before["highest"].tolist(), strict=True)
        return map(
            SeriesReading,
            self._rows.processes(slots["row"]),
            slots["operation"].tolist(),
            slots["phase"].tolist(),
            index,
            counts,
            (slots["sum"] - before["sum"]).tolist(),
            [new if new > old else None for new, old in highest],
            (slots["bytes"] - before["bytes"]).tolist(),
        )


_NOTHING = np.empty((0, 2), np.uint32)
_FIRST_SLOTS = 32
"""Slots whose counters are mapped from the start: 0.6 MB."""


class _Counters:
    """The histograms of all slots. Previous values are kept only for counters that are not zero, which are few."""

    def __init__(self, shared: Map, slots: int, layout: HdrLayout) -> None:
        self._map, self._length = shared, layout.length
        self._shared = self._mapped(min(_FIRST_SLOTS, slots))
        self._read = [_NOTHING] * slots  # for each slot: counters and their previous values, shape (n, 2)
        self.at_once = max(_AT_ONCE // self._length, 1)
        self._now = np.zeros((self.at_once, self._length), np.uint32)
        self._before = np.zeros_like(self._now)

    def new(self, numbers: NDArray[np.intp]) -> tuple[list[Ints], list[Ints]]:
        """The changed counters of up to `at_once` slots, and the increase of each, since the last call."""
        now, before = self._lay_out_now(numbers).ravel(), self._lay_out_before(numbers).ravel()
        at = np.flatnonzero(np.logical_or(now, before))
        begins = np.arange(len(numbers) + 1) * self._length
        ends = np.searchsorted(at, begins)
        index, counts = at - np.repeat(begins[:-1], np.diff(ends)), now[at] - before[at]
        self._keep(numbers, _parts(np.stack((index.astype(np.uint32), now[at]), axis=1), ends))
        moved = np.flatnonzero(counts)
        ends = np.searchsorted(moved, ends)
        return _parts(index[moved], ends), _parts(counts[moved].astype(np.int64), ends)

    def forget(self, numbers: Iterable[int]) -> None:
        """Clears the counters of slots that have no series any more.

        Without clearing, more and more counters of a slot would be non-zero with each process that uses it.
        """
        for number in numbers:
            self._reach(number)[number] = 0
            self._read[number] = _NOTHING

    def _lay_out_now(self, numbers: NDArray[np.intp]) -> NDArray[np.uint32]:
        now = self._now[: len(numbers)]
        np.take(self._reach(numbers[-1]), numbers, 0, now, mode="clip")  # other modes copy once more
        return now

    def _reach(self, number: int) -> NDArray[np.uint32]:
        """The counters of at least the slots up to a number, shape (slots, counters).

        Mapped pages count as memory of the collector, and the kernel uses the first slots first.
        """
        if number >= len(self._shared):
            self._shared = self._mapped(min(2 * int(number), len(self._read)))
        return self._shared

    def _mapped(self, slots: int) -> NDArray[np.uint32]:
        counters = self._map.array(np.dtype("<u4"), slots * self._length * 4)
        return counters.reshape(slots, self._length)

    def _lay_out_before(self, numbers: NDArray[np.intp]) -> NDArray[np.uint32]:
        before = self._before[: len(numbers)]
        before[:] = 0
        read = [self._read[number] for number in numbers.tolist()]
        index, values = np.concatenate(read).T
        before[np.repeat(np.arange(len(read)), list(map(len, read))), index] = values
        return before

    def _keep(self, numbers: NDArray[np.intp], read: list[NDArray[np.uint32]]) -> None:
        for number, of_slot in zip(numbers.tolist(), read, strict=True):
            self._read[number] = of_slot.copy()  # a view would keep the whole array alive


def _parts(whole: NDArray[T], ends: Ints) -> list[NDArray[T]]:
    return [whole[begin:end] for begin, end in pairwise(ends.tolist())]
