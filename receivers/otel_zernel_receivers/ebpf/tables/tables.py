"""The kernel's tables: sized before loading, read together, and freed row by row."""

from collections import defaultdict
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from otel_zernel_libraries.histograms.hdr import HdrLayout
from otel_zernel_receivers.ebpf.kernel import kernel_structs as structs
from otel_zernel_receivers.ebpf.kernel.libbpf import Map
from otel_zernel_receivers.ebpf.kernel.ring import RingBuffer
from otel_zernel_receivers.ebpf.tables.failures import FailureReading, FailureTable
from otel_zernel_receivers.ebpf.tables.memory import MemoryReading, MemoryTable
from otel_zernel_receivers.ebpf.tables.process_table import (
    CpuReading,
    HitCount,
    LostEvents,
    ProcessRows,
    TakersReading,
    UsageTable,
    WatchedProcess,
    WorkerTable,
)
from otel_zernel_receivers.ebpf.tables.samples import SamplesReading, SampleTable
from otel_zernel_receivers.ebpf.tables.series import KernelSeriesTable, SeriesKey, SeriesReading, Totals
from otel_zernel_receivers.ebpf.tables.thread_times import ThreadsReading, ThreadTimesTable


class TakerTable:
    """The takers of all processes. One thread at a time may use it."""

    def __init__(self, maps: Mapping[str, Map], rows: ProcessRows) -> None:
        self._takers, self._rows = maps["cpu_takers"], rows

    def read(self) -> list[TakersReading]:
        """The takers since the last call."""
        keys, values = self._takers.items(structs.TAKER_KEY, structs.TAKEN_TIME, removed=True)
        own: defaultdict[WatchedProcess, int] = defaultdict(int)
        others: defaultdict[WatchedProcess, dict[tuple[int, str], int]] = defaultdict(dict)
        for (row, generation, tgid, _), (ns, name) in zip(keys.tolist(), values.tolist(), strict=True):
            process = self._rows[row]
            if process.generation != generation:
                continue
            if tgid == self._rows.array[row]["tgid"]:
                own[process] += ns
            else:
                others[process][tgid, name.decode(errors="replace")] = ns
        return [TakersReading(process, own[process], others[process]) for process in own.keys() | others.keys()]


WORKERS_OF_PROCESS = 32
"""Room in the kernel for so many workers of each process: about 64 bytes each."""
THREADS_OF_PROCESS = 16
"""Room in the kernel for so many threads of each process that make marks, call CUDA or NCCL, or run Python."""
THREADS_OF_WORKER = 2
"""Room in the kernel for so many threads of each worker that run Python."""
FUNCTIONS_OF_PROCESS = 64
"""Room in the kernel for so many functions of each process that show a position. A compiler has some hundreds."""


def counted_layout(significant_figures: int = 2) -> HdrLayout:
    """The layout of the histograms in which the kernel counts."""
    return HdrLayout(structs.HIGHEST_NS, significant_figures)


@dataclass(frozen=True, slots=True)
class Limits:
    """The sizes of the tables in the kernel."""

    max_processes: int = 256
    max_series: int = 512
    layout: HdrLayout = field(default_factory=counted_layout)
    long_wait: float = 0.0001
    """The shortest wait for which an event is recorded, s."""
    samples_workers: bool = False
    shortest_wait: float = 0.001
    """The time that a thread waits before its stack is collected, s."""

    def apply(self, maps: Mapping[str, Map]) -> None:
        """Sets the sizes of the maps. Call it before loading."""
        for name in ("processes", "row_of_tgid", "free_rows"):
            maps[name].max_entries = self.max_processes
        workers = self.max_processes * WORKERS_OF_PROCESS if self.samples_workers else 0
        for name in ("gils", "pythons"):
            maps[name].max_entries = self.max_processes + workers
        maps["executables"].max_entries = self.max_processes * (2 if workers else 1)
        maps["python_threads"].max_entries = self.max_processes * THREADS_OF_PROCESS + workers * THREADS_OF_WORKER
        for name in ("slots", "free_slots"):
            maps[name].max_entries = self.max_series
        maps["workers"].max_entries = self.max_processes * WORKERS_OF_PROCESS
        for name in ("thread_times", "free_thread_times"):
            maps[name].max_entries = self.max_processes * THREADS_OF_PROCESS
        maps["frame_positions"].max_entries = self.max_processes * FUNCTIONS_OF_PROCESS
        maps["memory"].max_entries = self.max_processes * structs.DEVICES
        maps["collectives"].max_entries = self.max_processes * structs.PENDING_COLLECTIVES
        maps["counters"].max_entries = self.max_series * self.layout.length // structs.COUNTERS_PER_ELEMENT


@dataclass(frozen=True, slots=True)
class TableReadings:
    """The contents of all tables, as differences from the last reading."""

    series: list[SeriesReading]
    memory: list[MemoryReading]
    cpu: list[CpuReading]
    threads: list[ThreadsReading]
    failures: list[FailureReading]
    losses: dict[structs.Loss, int]
    """Calls and objects that could not be recorded, by reason."""
    lost_events: dict[WatchedProcess, LostEvents]
    """Events of each process that the ring buffer had no room for."""
    events: NDArray[Any]
    """Records of `kernel_structs.EVENT`."""
    samples: list[SamplesReading] = field(default_factory=list)
    takers: list[TakersReading] = field(default_factory=list)

    def calls(self) -> dict[SeriesKey, int]:
        """The calls that each series has counted."""
        return {reading.key: int(reading.counts.sum()) for reading in self.series}


class Tables:
    """The tables of a loaded object. One thread at a time may use them."""

    def __init__(self, maps: Mapping[str, Map], layout: HdrLayout) -> None:
        self.rows = ProcessRows(maps)
        self.workers = WorkerTable(maps, self.rows)
        self._usage = UsageTable(self.rows)
        self.series = KernelSeriesTable(maps, self.rows, layout)
        self.memory = MemoryTable(maps, self.rows)
        self.threads = ThreadTimesTable(maps, self.rows)
        self.samples = SampleTable(maps, self.rows)
        self.takers = TakerTable(maps, self.rows)
        self.failures = FailureTable(maps, self.rows)
        self.maps = maps
        self._by_address = (maps["allocations"], maps["communicators"], maps["contexts"], maps["open_works"])
        self.ring = RingBuffer(maps["ring"])
        self._losses: NDArray[np.uint64] = maps["losses"].array(np.dtype("<u8"))
        self._losses_read = np.zeros_like(self._losses)
        self._ended: frozenset[int] = frozenset()

    def read(self) -> TableReadings:
        """Reads what is new. Then frees the rows of processes that had already ended at the previous reading.

        The delay lets calls that were in progress when their process ended be counted first.
        """
        ended = self.rows.ended()
        readings = TableReadings(
            series=self.series.read(),
            memory=self.memory.read(),
            cpu=self._usage.cpu(ended - self._ended),
            threads=self.threads.read(),
            failures=self.failures.read(),
            losses=self._read_losses(),
            lost_events=self._usage.lost_events(),
            events=self.ring.read(),
            samples=self.samples.read(),
            takers=self.takers.read(),
        )
        for row in ended & self._ended:
            for table in (self.series, self.memory, self.failures, self._usage, self.rows):
                table.free(row)
        self._forget_addresses(ended & self._ended)
        self._ended = ended - self._ended
        return readings

    def totals(self) -> Totals:
        """The calls that each series slot has counted since loading."""
        return self.series.totals()

    def calls(self, since: Totals, until: Totals) -> dict[SeriesKey, int]:
        """The calls that each series counted between two calls of `totals`, without a reading in between."""
        return self.series.calls(since, until)

    def hits(self) -> dict[WatchedProcess, HitCount]:
        """The hits of probes by every process since it began."""
        return self._usage.hits()

    def _forget_addresses(self, rows: frozenset[int]) -> None:
        for table in self._by_address if rows else ():
            keys = table.keys(structs.ADDRESS)
            table.delete_all(keys[np.isin(keys["row"], list(rows))])

    def _read_losses(self) -> dict[structs.Loss, int]:
        now = self._losses.copy()
        new, self._losses_read = now - self._losses_read, now
        return {reason: int(new[reason]) for reason in structs.Loss if new[reason]}
