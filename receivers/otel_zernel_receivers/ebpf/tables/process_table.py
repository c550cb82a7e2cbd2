"""The process table: a row for each process, from its first probed call to its end; what it uses, and its workers."""

import time
from collections import defaultdict
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from otel_zernel_receivers.ebpf.kernel.kernel_structs import NUMBER, PROCESS, UNUSED, WORKER, State
from otel_zernel_receivers.ebpf.kernel.libbpf import Map

_HITS = ["hits", "entry_hits", "operator_hits", "in_place_hits"]
_CPU = [*_HITS, "off_cpu", "io_wait", "last_burst", "bursts", "reads", "bytes_read"]
_SERVED = ["worker_cpu", "worker_io_wait", "worker_reads", "worker_bytes_read"]


NO_ROW = -1


@dataclass(frozen=True, slots=True)
class WatchedProcess:
    """A process that has made a probed call, or one of PyTorch that has made none yet."""

    row: int
    """`NO_ROW` if it has made none."""
    generation: int
    """Counts the processes that have used the row. With `row`, it identifies this process."""
    pid: int
    """In the collector's pid namespace."""


class HitCount(NamedTuple):
    """Hits of probes by one process."""

    with_return: int
    """On functions whose return is probed, too."""
    entries: int = 0
    """On the others."""
    operators: int = 0
    """The part of `entries` on operators of models."""
    in_place: int = 0
    """The part of `entries` on operators that change one tensor."""

    @property
    def all(self) -> int:
        return self.with_return + self.entries

    def since(self, before: "HitCount") -> "HitCount":
        """The hits after `before`."""
        return HitCount(*(now - then for now, then in zip(self, before, strict=True)))


@dataclass(frozen=True, slots=True)
class CpuReading:
    """CPU use since the last reading, of those threads of a process that make probed calls."""

    process: WatchedProcess
    hits: HitCount
    """Of all probes, whether or not the call was counted."""
    off_cpu_ns: int
    """Time off the CPU for any reason, the sum over threads."""
    io_wait_ns: int
    """The part of it in uninterruptible sleep, which is mostly waiting for a disk."""
    last_burst_ns: int
    """How long a thread last ran until it went to sleep; 0 if none went to sleep."""
    reads: int
    """System calls that read more than 4 KiB, by any thread of the process."""
    bytes_read: int
    phase: int = 0
    """The current phase of the process."""
    phase_ns: int = 0
    """Time since the phase began; 0 if the process has never been in one."""


@dataclass(frozen=True, slots=True)
class ServedReading:
    """The use of the machine by all workers of one process, since the last reading."""

    ended_cpu_ns: int
    """CPU time of the workers that have ended, since their start."""
    io_wait_ns: int
    reads: int
    """System calls that read more than 4 KiB."""
    bytes_read: int


@dataclass(frozen=True, slots=True)
class TakersReading:
    """Who took the CPU from one process, since the last reading."""

    process: WatchedProcess
    own_ns: int
    """Other threads of the process itself."""
    others_ns: Mapping[tuple[int, str], int]
    """Other processes, by the pid in the initial pid namespace and the name."""


@dataclass(frozen=True, slots=True)
class Throttling:
    """The counters of a control group and of those around it, since they were made."""

    throttled_s: float = 0.0
    periods: int = 0
    throttled_periods: int = 0
    pressure_s: float | None = None
    """Time in which a thread of the group waited for a CPU; None if the kernel does not count it."""

    def since(self, before: "Throttling") -> "Throttling":
        """The increase. A smaller counter belongs to another group of the same name."""
        pressure = None
        if self.pressure_s is not None:
            pressure = max(self.pressure_s - (before.pressure_s or 0.0), 0.0)
        return Throttling(
            max(self.throttled_s - before.throttled_s, 0.0),
            max(self.periods - before.periods, 0),
            max(self.throttled_periods - before.throttled_periods, 0),
            pressure,
        )


@dataclass(frozen=True, slots=True)
class LimitsReading:
    """One process."""

    process: WatchedProcess
    cpus: float
    """The CPUs that it may use: by its affinity, and by the smallest quota."""
    runnable: int
    """Its threads that run, or could run, at this moment."""
    throttling: Throttling | None
    """Since the last reading; None if its control group has no counters."""
    memory: int = 0
    """Bytes of memory that are no copies of files."""
    memory_left: int | None = None
    """Bytes that the smallest limit of its control groups leaves; None if there is none."""


def _packed(names: Sequence[str]) -> np.dtype[np.void]:
    """The type of a few fields of a row. A view of them has elements of the size of a row, 2 KB."""
    return np.dtype([(name, PROCESS[name]) for name in names])


def _rows_in(array: NDArray[np.void], state: State) -> NDArray[np.intp]:
    return np.flatnonzero(array["state"] == state)


class ProcessRows:
    """The rows of the process table.

    The kernel claims free rows and marks ended processes; `free` makes rows free again.
    """

    def __init__(self, maps: Mapping[str, Map]) -> None:
        self.array: NDArray[np.void] = maps["processes"].array(PROCESS)
        """The kernel's own memory."""
        self._row_of_tgid, self._free = maps["row_of_tgid"], maps["free_rows"]
        self._visible_devices: dict[WatchedProcess, tuple[int, ...]] = {}
        for row in reversed(range(len(self.array))):
            self._free.put(None, NUMBER.pack(row))

    def __getitem__(self, row: int) -> WatchedProcess:
        process = self.array[row]
        return WatchedProcess(row, int(process["generation"]), int(process["pid"]))

    def processes(self, rows: NDArray[np.integer[Any]]) -> list[WatchedProcess]:
        """The process of each row."""
        columns = rows, self.array["generation"][rows], self.array["pid"][rows]
        return list(map(WatchedProcess, *(column.tolist() for column in columns)))

    def live(self, *, trains: bool | None = None) -> list[WatchedProcess]:
        """The processes that the kernel counts; only those that train, or do not train yet, if `trains` is given.

        A process trains if it has used CUDA or NCCL, computed gradients, or opened a scope of a DataLoader or an
        optimizer.
        """
        rows = _rows_in(self.array, State.LIVE)
        return self.processes(rows if trains is None else rows[(self.array["trains"][rows] > 0) == trains])

    def held(self) -> list[WatchedProcess]:
        """The processes that have a row, including ignored ones and those that have just ended."""
        return self.processes(np.flatnonzero(self.array["state"] != State.FREE))

    def trains(self, process: WatchedProcess) -> bool:
        """Whether the process trains, or did when it ended."""
        row = self.array[process.row]
        return bool(row["trains"] and row["generation"] == process.generation)

    def name(self, process: WatchedProcess) -> str:
        """The process's name (comm) at its first probed call; empty if it has made none."""
        if process.row == NO_ROW:
            return ""
        name: str = self.array[process.row]["name"].decode(errors="replace")
        return name

    def origin(self, process: WatchedProcess) -> int:
        """The pid of the process that executed the program, if this process is a fork of it; else 0."""
        return int(self.array[process.row]["origin"])

    def group(self, process: WatchedProcess) -> tuple[int, int]:
        """The rank in the largest process group of PyTorch that the process has used, and the number of its ranks.

        The number is 0 if none was seen.
        """
        row = self.array[process.row]
        is_its_row = row["generation"] == process.generation
        return (int(row["group_rank"]), int(row["group_ranks"])) if is_its_row else (0, 0)

    def describe(self, process: WatchedProcess, world_size: int, visible_devices: tuple[int, ...]) -> None:
        """Sets the number of ranks of the process's job, for communicators made before the probes were attached, and
        the machine's numbers of the devices that the process sees, in the process's order."""
        if self.is_current(process):
            self.array[process.row]["world_size"] = world_size
            self._visible_devices[process] = visible_devices

    def device(self, process: WatchedProcess, number: int) -> int:
        """The machine's number of the process's device `number`; `number` itself if the order is not known."""
        visible = self._visible_devices.get(process, ())
        return visible[number] if number < len(visible) else number

    def ignore(self, process: WatchedProcess) -> None:
        """Makes the kernel stop counting the process."""
        if self.is_current(process):
            self.array[process.row]["state"] = State.IGNORED

    def end(self, process: WatchedProcess) -> None:
        """Marks the process as ended, if the kernel has not."""
        if self.is_current(process):
            self._row_of_tgid.delete(NUMBER.pack(int(self.array[process.row]["tgid"])))
            self.array[process.row]["state"] = State.ENDED

    def ended(self) -> frozenset[int]:
        """The rows of processes that have ended."""
        return frozenset(_rows_in(self.array, State.ENDED).tolist())

    def remove_slots(self, row: int) -> list[int]:
        """Removes the series slots of a row and returns their numbers."""
        slots = self.array[row]["slots"]
        numbers: list[int] = (slots[slots != UNUSED] - 1).tolist()
        slots[:] = UNUSED
        return numbers

    def free(self, row: int) -> None:
        """Makes the row of an ended process free for another one."""
        self._visible_devices.pop(self[row], None)
        self.array[row]["state"] = State.FREE
        self._free.put(None, NUMBER.pack(row))

    def is_current(self, process: WatchedProcess) -> bool:
        """Whether the process has a row, and has not ended."""
        if process.row == NO_ROW:
            return False
        row = self.array[process.row]
        return bool(row["generation"] == process.generation and row["state"] in (State.LIVE, State.IGNORED))


class LostEvents(NamedTuple):
    """Events of a process that the ring buffer had no room for. Times are those of CLOCK_MONOTONIC, ns."""

    number: int
    begin: int
    """The earliest beginning of one; 0 if it is not known."""
    end: int


class UsageTable:
    """What the processes use: CPU time, hits of probes, room in the ring buffer."""

    def __init__(self, rows: ProcessRows) -> None:
        self._rows = rows
        self._lost_events_read = np.zeros(len(rows.array), np.uint64)
        self._cpu_read = np.zeros(len(rows.array), _packed(_CPU))
        self._hits_before = np.zeros(len(rows.array), _packed(_HITS))
        """The hits of earlier processes in each row."""

    def cpu(self, ended: Collection[int] = ()) -> list[CpuReading]:
        """The CPU use of every counted process, and of the processes in the rows `ended`, which have just ended."""
        live = _rows_in(self._rows.array, State.LIVE)
        rows = np.concatenate((live, np.fromiter(ended, np.intp)))
        now, before = self._rows.array[rows][_CPU], self._cpu_read[rows]
        self._cpu_read[rows] = now
        new = {name: now[name] - before[name] for name in _CPU}
        new["last_burst"] = np.where(new.pop("bursts"), now["last_burst"], 0)
        since, monotonic_ns = self._rows.array["phase_since"][rows], np.uint64(time.monotonic_ns())
        since[len(live) :] = 0  # an ended process is in no phase
        new["phase"] = self._rows.array["phase"][rows]
        new["phase_ns"] = np.where(since, np.maximum(monotonic_ns, since) - since, 0)
        hits = map(HitCount, *(new.pop(name).tolist() for name in _HITS))
        return list(map(CpuReading, self._rows.processes(rows), hits, *(column.tolist() for column in new.values())))

    def hits(self) -> dict[WatchedProcess, HitCount]:
        """The hits of probes by every process since it began."""
        rows = _rows_in(self._rows.array, State.LIVE)
        columns = ((self._rows.array[name][rows] - self._hits_before[name][rows]).tolist() for name in _HITS)
        return dict(zip(self._rows.processes(rows), map(HitCount, *columns), strict=True))

    def lost_events(self) -> dict[WatchedProcess, LostEvents]:
        """The events of each process that the ring buffer had no room for, since the last call."""
        array = self._rows.array
        lost = array["lost_events"] - self._lost_events_read
        self._lost_events_read += lost
        rows = np.flatnonzero(lost)
        columns = lost[rows].tolist(), array["lost_from"][rows].tolist(), array["lost_until"][rows].tolist()
        array["lost_from"][rows] = 0
        return dict(zip(self._rows.processes(rows), map(LostEvents, *columns), strict=True))

    def free(self, row: int) -> None:
        """Forgets the use of the row's process, before the row is free for another one."""
        self._rows.array[row]["lost_events"] = self._rows.array[row]["lost_from"] = self._lost_events_read[row] = 0
        self._cpu_read[row] = self._rows.array[row][_CPU]
        self._hits_before[row] = self._rows.array[row][_HITS]


class WorkerTable:
    """The workers of the processes: each belongs to the process that it loads data for, and has no row."""

    def __init__(self, maps: Mapping[str, Map], rows: ProcessRows) -> None:
        self._workers = maps["workers"]
        self._rows = rows
        self._served_read = rows.array[_SERVED].astype(_packed(_SERVED))

    def serve(self, worker: WatchedProcess, trainer: WatchedProcess) -> None:
        """Makes the process a worker of another one, which takes its row away."""
        if self._rows.is_current(worker) and self._rows.is_current(trainer):
            tgid = NUMBER.pack(int(self._rows.array[worker.row]["tgid"]))
            entry = np.array((trainer.row, trainer.generation, worker.pid, 0), WORKER)
            self._workers.put(tgid, entry.tobytes())
            self._rows.end(worker)

    def by_process(self) -> dict[WatchedProcess, dict[int, int]]:
        """The workers of each process: their tgids by their pids in the collector's pid namespace."""
        workers: defaultdict[WatchedProcess, dict[int, int]] = defaultdict(dict)
        for tgid, (row, generation, pid, _) in self._items():
            trainer = self._rows[row]
            if trainer.generation == generation and self._rows.array[row]["state"] == State.LIVE:
                workers[trainer][pid] = tgid
        return dict(workers)

    def pids(self) -> set[int]:
        """The pids of all workers."""
        return {pid for pids in self.by_process().values() for pid in pids}

    def forget(self, exists: Callable[[int], bool]) -> None:
        """Forgets workers whose end the kernel's programs have missed. `exists` returns whether a pid still exists."""
        for tgid, (_, _, pid, _) in self._items():
            if not exists(pid):
                self._workers.delete(NUMBER.pack(tgid))

    def _items(self) -> Iterable[tuple[int, tuple[int, int, int, int]]]:
        """By tgid: the row and the generation of the process that it serves, its pid, and a reserved number."""
        tgids, workers = self._workers.items(np.dtype("<u4"), WORKER)
        return zip(tgids.tolist(), workers.tolist(), strict=True)

    def served(self) -> dict[WatchedProcess, ServedReading]:
        """The use of CPU, disk and data by the workers of every process since the last call."""
        used = self._rows.array[_SERVED].astype(self._served_read.dtype)
        new = {name: used[name] - self._served_read[name] for name in _SERVED}
        self._served_read = used
        rows = np.flatnonzero(np.logical_or.reduce([new[name] > 0 for name in _SERVED]))
        columns = (new[name][rows].tolist() for name in _SERVED)
        return dict(zip(self._rows.processes(rows), map(ServedReading, *columns), strict=True))
