"""The threads of a process as /proc shows them: the state of each, and the system call that it is in.

Nothing is stopped, and no file of the process is opened or examined: the file system of a hung process may hang, too.
"""

import os
import re
import threading
import time
from collections.abc import Iterable
from contextlib import suppress
from itertools import islice
from pathlib import Path
from signal import Signals
from typing import Final, NamedTuple

from otel_zernel_receivers.ebpf.hangs.system_calls import NAMES
from otel_zernel_receivers.ebpf.processes.procfs import ProcessFolder

_MOST: Final = 4_096
"""Threads of a process that are listed."""
_STOPPED: Final = "Tt"


_EXEC_START: Final = re.compile(rb"^se[.]exec_start +: +([0-9.]+)$", re.MULTILINE)
"""In `sched`, in ms. A kernel without CONFIG_SCHED_DEBUG has no such file."""
_OF_TRANSPORT: Final = ("gloo_", "pt_gloo", "pt_nccl", "pt_tcpstore")
"""The beginnings of the names of threads that PyTorch starts in a rank. They move data and look after other threads."""
_PROCESSOR: Final = 36
"""The field `processor` of proc_pid_stat(5), counted from the state."""
_FRESH: Final = 1.0
"""Seconds for which the clock of a CPU is not read again: a hypervisor may take a part of each of them."""
_PATIENCE: Final = 0.05
"""Seconds in which a CPU must run a thread that reads its clock. A thread with real-time priority may prevent that."""


class Task(NamedTuple):
    """A thread at one moment."""

    tid: int
    name: str
    state: str
    """A letter, as in proc_pid_stat(5)."""
    call: str
    """The name of the system call that it waits in; empty outside. `system call 12` if it has no name here."""
    arguments: tuple[int, ...]
    """Of the system call."""
    stack: int
    """Its stack pointer; 0 while it runs."""
    place: str
    """The function of the kernel that it waits in (`wchan`); empty if it is not known."""
    runs: int = 0
    """How often it has got a CPU; 0 if the kernel does not count it."""
    slept: float = 0.0
    """s since it last had a CPU; 0 while it runs, and if the kernel does not say it."""

    @property
    def is_running(self) -> bool:
        """Whether it runs, or could."""
        return self.state == "R"

    @property
    def is_of_transport(self) -> bool:
        """Whether it moves the data of collectives. Such threads run now and then, whether or not the job moves."""
        return self.name.startswith(_OF_TRANSPORT)

    @property
    def is_stopped(self) -> bool:
        """Whether a signal, a debugger or the freezer of its control group has stopped it."""
        return self.state in _STOPPED or "freezer" in self.place or "refrigerator" in self.place


class Status(NamedTuple):
    """The facts about a process as a whole."""

    is_dead: bool
    """Its parent has not asked for its exit status yet."""
    is_traced: bool
    """A debugger is attached."""
    swapped: float
    """The ratio of its memory that is in swap."""


def read_status(folder: ProcessFolder) -> Status:
    """The status of a process. Raises OSError if it has ended."""
    lines = (line.partition(":") for line in (folder.path / "status").read_text(errors="replace").splitlines())
    fields = {name: text.split() for name, _, text in lines if text.strip()}
    numbers = {name: int(fields[name][0]) if name in fields else 0 for name in ("TracerPid", "VmSwap", "VmRSS")}
    swapped = numbers["VmSwap"] / max(numbers["VmSwap"] + numbers["VmRSS"], 1)
    return Status(fields["State"][0] in "ZX", numbers["TracerPid"] > 0, swapped)


def ending_of(folder: ProcessFolder) -> str:
    """`killed by SIGKILL`, `ended with exit code 1`: how a process ended whose parent has not asked for it yet. Empty
    if /proc does not say it. Raises OSError if the process is gone."""
    status = folder.exit_status()
    number = status & 0x7F
    if number:
        return f"killed by {Signals(number).name if number in set(Signals) else f'signal {number}'}"
    return f"ended with exit code {status >> 8}"


def children_of(folder: ProcessFolder) -> list[int]:
    """The pids of the children that its threads have started. Raises OSError if the process has ended."""
    children: list[int] = []
    for tid in task_ids(folder):
        with suppress(OSError):
            children += map(int, (folder.path / "task" / str(tid) / "children").read_text().split())
    return children


def task_ids(folder: ProcessFolder) -> list[int]:
    """The threads of a process, the main one first. Raises OSError if the process has ended."""
    ids = {int(entry.name) for entry in islice((folder.path / "task").iterdir(), _MOST)}
    return [*ids & {folder.pid}, *sorted(ids - {folder.pid})]


def own_ids(folder: ProcessFolder, tids: Iterable[int]) -> dict[int, int]:
    """The threads by the ids that they have themselves, in the innermost pid namespace of the process.

    Raises OSError if the process has ended.
    """
    if len(folder.own_pids()) == 1:
        return {tid: tid for tid in tids}
    ids = {}
    for tid in tids:
        with suppress(OSError):
            ids[ProcessFolder(folder.path / "task", tid).own_pids()[-1]] = tid
    return ids


def is_rank(folder: ProcessFolder) -> bool:
    """Whether a process has threads that only a rank has: a fork has none of the threads of its parent.

    Raises OSError if the process has ended.
    """
    for tid in task_ids(folder):
        with suppress(OSError):
            if (folder.path / "task" / str(tid) / "comm").read_text(errors="replace").startswith(_OF_TRANSPORT):
                return True
    return False


class SchedulerClocks:
    """The clock of each CPU's scheduler. What a hypervisor takes of a CPU is left out of its clock, so two of them may
    differ by many seconds. Each is read by a thread on its CPU."""

    def __init__(self) -> None:
        self._looks: dict[int, _Look] = {}

    def now(self, cpu: int) -> float:
        """The time (s); 0 if the kernel does not show it, or this process may not run there or does not get to."""
        look = self._looks.get(cpu)
        if not look or (not look.is_alive() and time.monotonic() - look.begun > _FRESH):
            look = self._looks[cpu] = _Look(cpu)
            look.start()
            look.join(_PATIENCE)
        return time.monotonic() + look.ahead if look.ahead is not None else 0.0


class _Look(threading.Thread):
    def __init__(self, cpu: int) -> None:
        super().__init__(name="clock of a CPU", daemon=True)
        self.begun, self._cpu = time.monotonic(), cpu
        self.ahead: float | None = None
        """Seconds by which the clock is ahead of the monotonic one."""

    def run(self) -> None:
        with suppress(OSError):
            os.sched_setaffinity(0, {self._cpu})  # of this thread alone
            if now := _last_run(Path("/proc/thread-self")):
                self.ahead = now - time.monotonic()


def read_task(folder: ProcessFolder, tid: int, clocks: SchedulerClocks | None = None) -> Task:
    """The state of a thread. `clocks`: to say how long it sleeps.

    Raises OSError or ValueError if it has ended, or if /proc denies access.
    """
    path = folder.path / "task" / str(tid)
    stat = (path / "stat").read_bytes()
    begin, end = stat.index(b"("), stat.rindex(b")")
    name, fields = stat[begin + 1 : end].decode(errors="replace"), stat[end + 2 :].split()
    state = fields[0].decode()
    call, arguments, stack = _system_call((path / "syscall").read_text())
    place = "" if state == "R" else (path / "wchan").read_text().strip("0")
    last = _last_run(path) if clocks and state != "R" else 0.0
    slept = max(clocks.now(int(fields[_PROCESSOR])) - last, 0.0) if clocks and last else 0.0
    return Task(tid, name, state, call, arguments, stack, place, _runs(path), slept)


def _last_run(task: Path) -> float:
    """When the thread last had a CPU, by the clock of that CPU's scheduler; 0 if the kernel does not show it."""
    with suppress(OSError):
        match = _EXEC_START.search((task / "sched").read_bytes())
        return float(match[1]) / 1e3 if match else 0.0
    return 0.0


def _runs(task: Path) -> int:
    try:
        return int((task / "schedstat").read_text().split()[2])
    except (OSError, IndexError):
        return 0


def _system_call(text: str) -> tuple[str, tuple[int, ...], int]:
    """`running`; else the number, the arguments, the stack pointer and the instruction, where -1 is no call."""
    words = text.split()
    if len(words) < 3:
        return "", (), 0
    number, stack = int(words[0]), int(words[-2], 16)
    arguments = tuple(int(word, 16) for word in words[1:-2])
    return NAMES.get(number, "" if number < 0 else f"system call {number}"), arguments, stack
