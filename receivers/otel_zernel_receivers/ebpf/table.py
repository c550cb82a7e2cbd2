"""Reading the series table, and giving back what ended processes had.

The kernel counts into arrays that are mapped here and never cleared: what is new is the difference, modulo 2^32, to
what was there last time. Nothing is read of series that have not moved.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from otel_zernel_receivers.ebpf.hdr import Layout
from otel_zernel_receivers.ebpf.layout import (
    COUNTERS_PER_ELEMENT,
    LOSSES,
    NUMBER,
    PROCESS,
    SLOT,
    UNUSED,
    Loss,
    State,
)
from otel_zernel_receivers.ebpf.libbpf import Map

_AT_ONCE = 64
"""Histograms compared at once: what bounds the memory of a reading."""


@dataclass(frozen=True, slots=True)
class Process:
    """A process that has made a probed call."""

    row: int
    generation: int
    """With `row`, names this process and no later one."""
    pid: int
    """In the collector's pid namespace."""
    name: str
    """As in /proc/PID/comm, at its first call."""


@dataclass(frozen=True, slots=True)
class Reading:
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
    errors: int


def size_maps(maps: Mapping[str, Map], max_processes: int, max_series: int, layout: Layout) -> None:
    """Makes room for so many processes and series; before loading."""
    for name in ("processes", "row_of_tgid", "free_rows"):
        maps[name].max_entries = max_processes
    for name in ("slots", "free_slots"):
        maps[name].max_entries = max_series
    maps["counters"].max_entries = max_series * layout.length // COUNTERS_PER_ELEMENT


class SeriesTable:
    """The tables of a loaded object. One thread at a time may use it."""

    def __init__(self, maps: Mapping[str, Map], layout: Layout) -> None:
        self._row_of_tgid, self._free_rows, self._free_slots = (
            maps[name] for name in ("row_of_tgid", "free_rows", "free_slots")
        )
        rows, slots = maps["processes"].max_entries, maps["slots"].max_entries
        self._processes: NDArray[np.void] = _array(maps["processes"], PROCESS, rows)
        self._slots: NDArray[np.void] = _array(maps["slots"], SLOT, slots)
        self._counters: NDArray[np.uint32] = _array(maps["counters"], np.dtype("<u4"), slots * layout.length).reshape(
            slots, -1
        )
        self._losses: NDArray[np.uint64] = _array(maps["losses"], np.dtype("<u8"), LOSSES)
        # Zeros of an untouched page cost no memory, so series that never were cost none.
        self._slots_read = np.zeros_like(self._slots)
        self._counters_read = np.zeros(self._counters.shape, np.uint32)
        self._losses_read = np.zeros_like(self._losses)
        self._ended: frozenset[int] = frozenset()
        for number in reversed(range(rows)):
            self._free_rows.put(None, NUMBER.pack(number))
        for number in reversed(range(slots)):
            self._free_slots.put(None, NUMBER.pack(number))

    def read(self) -> list[Reading]:
        """What is new in every series. Then rows and slots of processes that had ended by the reading before go back:
        a call that was being counted when its process ended has long been counted by then."""
        ended = frozenset(self._rows_in(State.ENDED))
        processes: dict[int, Process] = {}
        moved = np.flatnonzero(self._slots["count"] != self._slots_read["count"])
        readings = [
            reading
            for start in range(0, len(moved), _AT_ONCE)
            for reading in self._read_slots(moved[start : start + _AT_ONCE], processes)
        ]
        for row in ended & self._ended:
            self._free(row)
        self._ended = ended - self._ended
        return readings

    def processes(self) -> list[Process]:
        """The processes that are being counted."""
        return [self._process(row) for row in self._rows_in(State.LIVE)]

    def losses(self) -> dict[Loss, int]:
        """What was lost since the last call, by reason."""
        now = self._losses.copy()
        new, self._losses_read = now - self._losses_read, now
        return {reason: int(new[reason]) for reason in Loss if new[reason]}

    def ignore(self, process: Process) -> None:
        """Counts nothing of the process any more."""
        if self._is_current(process):
            self._processes[process.row]["state"] = State.IGNORED

    def end(self, process: Process) -> None:
        """Notes the end of a process that the kernel did not tell us about."""
        if self._is_current(process):
            self._row_of_tgid.delete(NUMBER.pack(int(self._processes[process.row]["tgid"])))
            self._processes[process.row]["state"] = State.ENDED

    @property
    def free_slots(self) -> int:
        """Series for which there is room."""
        return len(self._slots) - int(np.count_nonzero(self._processes["slots"]))

    def _read_slots(self, numbers: NDArray[np.intp], processes: dict[int, Process]) -> Iterator[Reading]:
        slots = self._slots[numbers]  # before the counters: a call between the two is read again as its slot moves
        counters = self._counters[numbers]
        which, index = np.nonzero(counters != self._counters_read[numbers])
        counts = (counters[which, index] - self._counters_read[numbers][which, index]).astype(np.int64)
        before = self._slots_read[numbers]
        self._slots_read[numbers], self._counters_read[numbers] = slots, counters
        ends = np.searchsorted(which, np.arange(len(numbers) + 1))
        for at, (slot, earlier) in enumerate(zip(slots, before, strict=True)):
            row = int(slot["row"])
            process = processes.get(row) or processes.setdefault(row, self._process(row))
            mine = slice(ends[at], ends[at + 1])
            yield _difference(process, slot, earlier, index[mine], counts[mine])

    def _rows_in(self, state: State) -> list[int]:
        rows: list[int] = np.flatnonzero(self._processes["state"] == state).tolist()
        return rows

    def _process(self, row: int) -> Process:
        process = self._processes[row]
        name = process["name"].decode(errors="replace")
        return Process(row, int(process["generation"]), int(process["pid"]), name)

    def _is_current(self, process: Process) -> bool:
        row = self._processes[process.row]
        return bool(row["generation"] == process.generation and row["state"] in (State.LIVE, State.IGNORED))

    def _free(self, row: int) -> None:
        process = self._processes[row]
        taken = process["slots"][process["slots"] != UNUSED] - 1
        process["slots"] = UNUSED
        process["state"] = State.FREE
        for number in taken.tolist():
            self._slots["highest"][number] = self._slots_read["highest"][number] = 0
            self._free_slots.put(None, NUMBER.pack(number))
        self._free_rows.put(None, NUMBER.pack(row))


def _array(source: Map, dtype: np.dtype[Any], length: int) -> NDArray[Any]:
    return np.frombuffer(source.memory(), dtype, length)


def _difference(
    process: Process, slot: np.void, before: np.void, index: NDArray[np.int64], counts: NDArray[np.int64]
) -> Reading:
    highest = int(slot["highest"])
    return Reading(
        process,
        int(slot["operation"]),
        int(slot["phase"]),
        index,
        counts,
        int(slot["sum"] - before["sum"]),
        highest if highest > before["highest"] else None,
        int(slot["bytes"] - before["bytes"]),
        int(slot["errors"] - before["errors"]),
    )
