"""The workers of training processes, those of a DataLoader: finds them, and adds up what they use.

A child of a training process may be anything: a server, a logger, an environment. The kernel finds workers by the name
that PyTorch gives them since 2.6. This module finds the others: those of older PyTorch, which put tensors into shared
memory, and those that worked before their process trained.
"""

from collections.abc import Callable, Collection, Mapping
from contextlib import suppress
from dataclasses import dataclass

from otel_zernel_receivers.ebpf.processes.procfs import ProcessFolder
from otel_zernel_receivers.ebpf.tables.process_table import ProcessRows, ServedReading, WatchedProcess, WorkerTable

_GENERATIONS = 4
"""Parents that are examined: a worker of a forkserver is the grandchild of its training process."""
_NAME = "pt_data_worker"
_STARTED_BY_MULTIPROCESSING = (b"multiprocessing.spawn", b"multiprocessing.forkserver", b"--multiprocessing-fork")
"""Parts of the command lines of Python's multiprocessing."""


def is_worker(folder: ProcessFolder) -> bool:
    """Whether the process has PyTorch's name for workers, or has put tensors into shared memory as they do.

    The names of shared tensors have the pid of the process that made them. A fork also has those of its parent.
    """
    if folder.name == _NAME:
        return True
    own = b"/torch_%d_" % folder.own_pids()[-1]
    return own in folder.maps or any(own in target for target in folder.open_files())


def descends_from(
    folder: ProcessFolder, training: Mapping[int, WatchedProcess], folder_of: Callable[[int], ProcessFolder]
) -> WatchedProcess | None:
    """The training process that this process is a part of; None if it is none's.

    `training` are the processes that train, by their pids in the scanned /proc. Every process from this one up to the
    training process must be a fork of its parent, or started by multiprocessing. So the ranks that a launcher starts,
    and other programs that a job starts, are no part of it.
    """
    with suppress(OSError, ValueError):
        for _ in range(_GENERATIONS):
            parent = folder_of(folder.parent())
            if not parent.pid or not _belongs_to(folder, parent):
                return None
            if trainer := training.get(parent.pid):
                return trainer
            folder = parent
    return None


def _belongs_to(child: ProcessFolder, parent: ProcessFolder) -> bool:
    command = child.command_line
    return any(part in command for part in _STARTED_BY_MULTIPROCESSING) or (command == parent.command_line != b"")


@dataclass(frozen=True, slots=True)
class WorkersReading:
    """The workers of one process. All but their number is since the last reading."""

    process: WatchedProcess
    count: int
    """Workers that live now."""
    cpu_s: float
    """CPU time of all their threads."""
    io_wait_s: float
    """Time in uninterruptible sleep, of their threads that call PyTorch."""
    reads: int
    """System calls that read more than 4 KiB."""
    bytes_read: int
    memory: int = 0
    """Bytes of memory of those that live now, without copies of files."""


_NOTHING = ServedReading(0, 0, 0, 0)


class WorkerUsage:
    """Adds up what the workers of each process use."""

    def __init__(self, rows: ProcessRows, table: WorkerTable, folder_of: Callable[[int], ProcessFolder]) -> None:
        """`folder_of` gives the folder in /proc of a process by its pid."""
        self._rows = rows
        self._table = table
        self._folder_of = folder_of
        self._ended_ns: dict[WatchedProcess, int] = {}
        """CPU time of the workers that have ended, of each process that has ever had one."""
        self._cpu_s: dict[WatchedProcess, float] = {}
        """CPU time of all workers at the last reading."""

    def read(self) -> list[WorkersReading]:
        """The workers of every process that has or had some."""
        workers, served = self._table.by_process(), self._table.served()
        held = set(self._rows.held())
        known = dict.fromkeys((*workers, *served), 0) | self._ended_ns
        self._ended_ns = {
            process: ended + served.get(process, _NOTHING).ended_cpu_ns
            for process, ended in known.items()
            if process in held
        }
        self._cpu_s = {process: self._cpu_s.get(process, 0.0) for process in self._ended_ns}
        return [self._read(worker, workers.get(worker, {}), served.get(worker, _NOTHING)) for worker in self._ended_ns]

    def _read(self, process: WatchedProcess, workers: Collection[int], served: ServedReading) -> WorkersReading:
        before = self._cpu_s[process]
        now = max(self._ended_ns[process] / 1e9 + sum(map(self._cpu_of, workers)), before)
        self._cpu_s[process] = now
        memory = sum(map(self._memory_of, workers))
        return WorkersReading(
            process, len(workers), now - before, served.io_wait_ns / 1e9, served.reads, served.bytes_read, memory
        )

    def _cpu_of(self, pid: int) -> float:
        with suppress(OSError, ValueError):
            return self._folder_of(pid).cpu_time()
        return 0.0

    def _memory_of(self, pid: int) -> int:
        with suppress(OSError, ValueError):
            return self._folder_of(pid).anonymous_memory()
        return 0
