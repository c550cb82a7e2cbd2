"""The processes that make no marks: since when, and what they do now.

A process that has made marks is silent from `AFTER_MARK` after the latest one on. A process of PyTorch without any
may have been stuck before the receiver came, so it is silent from `AFTER_ATTACHING` on. One that has begun since
then gets more time to start.
"""

import time
from collections.abc import Callable, Collection, Iterator, Sequence
from contextlib import suppress
from dataclasses import replace
from typing import Final, NamedTuple

from otel_zernel_libraries.training.stacks import MOST_COLLECTIVES, OpenCollective, ProcessThreads
from otel_zernel_receivers.ebpf.hangs.collectives import OpenCollectives
from otel_zernel_receivers.ebpf.hangs.processes import ProcessReader, Since, Watched
from otel_zernel_receivers.ebpf.hangs.tasks import is_rank
from otel_zernel_receivers.ebpf.processes.procfs import ProcessFolder
from otel_zernel_receivers.ebpf.processes.workers import is_worker
from otel_zernel_receivers.ebpf.tables.process_table import NO_ROW, ProcessRows, WatchedProcess, WorkerTable
from otel_zernel_receivers.ebpf.tables.thread_times import ACTIVITIES, ThreadTimesTable

AFTER_MARK: Final = 5.0
AFTER_ATTACHING: Final = 2.0
"""s"""
_PAUSE: Final = 0.1
"""The pause between two readings of a process, as a ratio of the time for which it has been silent."""
_LONGEST_PAUSE: Final = 30.0
"""s"""
_BUDGET: Final = 0.1
"""s that one reading of all silent processes may take. The others come with the next one."""


class Silence(NamedTuple):
    """A process that makes no marks."""

    process: WatchedProcess
    threads: ProcessThreads


class SilentProcesses:
    """Reads the silent processes of a session. One thread at a time may use it."""

    def __init__(
        self,
        rows: ProcessRows,
        workers: WorkerTable,
        threads: ThreadTimesTable,
        collectives: OpenCollectives,
        folder_of: Callable[[int], ProcessFolder],
        monotonic_ns: Callable[[], int] = time.monotonic_ns,
    ) -> None:
        """`folder_of` gives the folder in /proc of a process by its pid in the collector's pid namespace."""
        self._rows, self._workers, self._threads, self._collectives = rows, workers, threads, collectives
        self._folder_of, self._monotonic_ns = folder_of, monotonic_ns
        self._reader = ProcessReader(folder_of, monotonic=lambda: monotonic_ns() / 1e9)
        self._seen: dict[int, int] = {}
        """When a scan first found each process of PyTorch, ns. By pid."""
        self._present: set[int] = set()
        """Those that the first scan found."""
        self._has_scanned = False
        self._due: dict[WatchedProcess, int] = {}
        """When each silent process is read again, ns."""

    def note_scan(self, pytorch: Collection[int]) -> None:
        """Notes the pids of the processes of PyTorch. Workers and other forks of one are not watched by themselves."""
        now = self._monotonic_ns()
        new = set(pytorch) - self._seen.keys()
        self._seen = {pid: self._seen.get(pid, now) for pid in pytorch}
        for pid in new:
            if self._is_part(pid, pytorch):
                self._seen[pid] = 0
        self._present = self._present & self._seen.keys() if self._has_scanned else set(self._seen)
        self._has_scanned = True

    def read(self) -> list[Silence]:
        """The silent processes that are due. A process that is silent for long is read less often."""
        silent = dict(self._silent())
        self._due = {process: self._due.get(process, 0) for process in silent}
        workers, began, silences = self._workers.by_process() if silent else {}, self._monotonic_ns(), list[Silence]()
        for process in sorted(silent, key=self._due.__getitem__):
            now = self._monotonic_ns()
            if self._due[process] > now or now - began > _BUDGET * 1e9:
                break
            with suppress(OSError, ValueError):  # it has ended, or /proc denies access, which the scan reports
                watched = self._watched(process, silent[process], workers.get(process, ()))
                threads = self._reader.read(watched)
                begun = self._collectives.of(process, now) if process.row != NO_ROW else ()
                silences.append(Silence(process, replace(threads, collectives=_joined(begun, threads.collectives))))
            self._due[process] = now + round(min(silent[process] * _PAUSE, _LONGEST_PAUSE) * 1e9)
        return silences

    def _silent(self) -> Iterator[tuple[WatchedProcess, float]]:
        """The processes without a mark for long enough, and s since the latest one."""
        now = self._monotonic_ns()
        live = self._rows.live()
        for process in live:
            marked = int(self._rows.array[process.row]["marked"])
            since = marked or self._seen.get(process.pid, 0)
            if since and (now - since) / 1e9 >= (AFTER_MARK if marked else self._patience(process.pid)):
                yield process, (now - since) / 1e9
        with_row = {process.pid for process in live} | self._workers.pids()
        for pid, since in self._seen.items():
            if since and pid not in with_row and (now - since) / 1e9 >= self._patience(pid):
                yield WatchedProcess(NO_ROW, 0, pid), (now - since) / 1e9

    def _patience(self, pid: int) -> float:
        return AFTER_ATTACHING if pid in self._present else AFTER_MARK

    def _is_part(self, pid: int, pytorch: Collection[int]) -> bool:
        """Whether a process is a worker, or another fork of a process of PyTorch that is no rank itself."""
        with suppress(OSError, ValueError):
            folder = self._folder_of(pid)
            parent = self._folder_of(folder.parent())
            is_fork = parent.pid in pytorch and folder.command_line == parent.command_line
            return is_worker(folder) or (is_fork and not is_rank(folder))
        return False

    def _watched(self, process: WatchedProcess, silent: float, workers: Collection[int]) -> Watched:
        has_row = process.row != NO_ROW
        states = self._threads.now(process) if has_row else {}
        return Watched(
            process.pid,
            silent,
            has_marks=has_row and bool(self._rows.array[process.row]["marked"]),
            threads={
                tid: Since(ACTIVITIES[state], ns / 1e9) for tid, (state, ns) in states.items() if state in ACTIVITIES
            },
            workers=workers,
        )


def _joined(begun: Sequence[OpenCollective], waited: Sequence[OpenCollective]) -> tuple[OpenCollective, ...]:
    """The collectives that probes have seen begin, and those of stacks: others with a number have begun before."""
    if not begun:
        return tuple(waited)
    known, longest = set(map(_place, begun)), max(each.seconds for each in begun)
    older = [each for each in waited if each.sequence and _place(each) not in known]
    return (*(replace(each, seconds=max(each.seconds, longest)) for each in older), *begun)[:MOST_COLLECTIVES]


def _place(collective: OpenCollective) -> tuple[str, int]:
    return collective.communicator, collective.sequence
