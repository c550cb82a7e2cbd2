"""What the threads of any program do, as /proc shows it: no probe, and nothing changes in the program.

The kernel counts the time of each thread on a CPU and in the queue for one (`schedstat`). Samples divide the rest of
the time: the system call in which a thread sleeps, and the file, socket or pipe that it waits for.
"""

import os
import platform
import random
import struct
import threading
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from time import monotonic
from typing import Final

from otel_zernel_commands.why.watch.host_processes import command_of, cpus_allowed, frameworks_in
from otel_zernel_libraries.training.chosen_jobs import ancestors_of
from otel_zernel_libraries.training.frameworks import Framework, main_framework
from otel_zernel_libraries.training.ledger import Activity

_EVERY: Final = 0.05
"""Seconds between two looks, on average. Drawn anew for each, so that no period of a program hides between them."""
_CLOSELY: Final = 5.0
"""Seconds in which programs are looked at that often."""
_EVERY_LATER: Final = 0.3
_CHOOSE_EVERY: Final = 2.0
"""Seconds between two searches for programs."""
_MOST_PROCESSES: Final = 32
_MOST_THREADS: Final = 512
"""Threads of a process that are watched."""
_MOST_SAMPLED: Final = 12
"""Threads of a process whose waits are sampled: the first one, and those with the most CPU time."""
_MOST_POLLED: Final = 64
_LONGEST: Final = 4096


@dataclass(slots=True)
class SampledThread:
    """One thread. Times are in s."""

    tid: int
    name: str
    cpu: float = 0.0
    cpu_wait: float = 0.0
    """Time in which it could run, but another thread had the CPU."""
    watched: float = 0.0
    """Since the first look at it."""
    waits: Counter[Activity] = field(default_factory=Counter)
    """The samples in which it slept, by what it waited for."""

    @property
    def shares(self) -> dict[Activity, float]:
        """The shares of its time off the CPU, the largest first."""
        slept = max(self.watched - self.cpu - self.cpu_wait, 0.0) / max(self.watched, 1e-9)
        samples = self.waits.total()
        spent = {what: slept * count / samples for what, count in self.waits.items()}
        spent[Activity.CPU_WAIT] = min(self.cpu_wait / max(self.watched, 1e-9), 1.0)
        if slept and not samples:
            spent[Activity.UNKNOWN] = slept
        return dict(sorted(spent.items(), key=lambda item: -item[1]))


@dataclass(slots=True)
class SampledProgram:
    """One process."""

    pid: int
    command: tuple[str, ...]
    ancestors: tuple[int, ...]
    """The pids of its parent, grandparent and so on."""
    cpus_allowed: int
    """The CPUs on which it may run."""
    framework: Framework
    """The one that describes it best; `NONE` if it has loaded none."""
    cpus: float
    """The CPUs that all its threads used, on average, with those that have ended."""
    watched: float
    """The time between the first look and the last one, s."""
    threads: list[SampledThread] = field(default_factory=list)
    """The first thread, and then the others, by their CPU time."""


class ThreadSampler:
    """Looks at the threads of the processes that `choose` names."""

    def __init__(self, choose: Callable[[], Iterable[int]], proc: Path = Path("/proc")) -> None:
        self._choose = choose
        self._proc = proc
        self._programs: dict[int, _Program] = {}
        self._chosen_at = -_CHOOSE_EVERY

    def look(self, now: float) -> None:
        """Looks once at every thread. `now` is a monotonic clock in s."""
        if now - self._chosen_at >= _CHOOSE_EVERY:
            self._chosen_at = now
            for pid in self._choose():
                if pid not in self._programs and len(self._programs) < _MOST_PROCESSES:
                    self._programs[pid] = _Program(self._proc / str(pid), pid)
        for program in self._programs.values():
            with suppress(OSError, ValueError):
                program.look(now)

    def programs(self) -> list[SampledProgram]:
        """The processes, those with the most CPU time first."""
        results = [program.result() for program in self._programs.values()]
        return sorted((result for result in results if result.threads), key=lambda program: -program.cpus)


@contextmanager
def sampling(sampler: ThreadSampler, has_steps: Callable[[], bool]) -> Iterator[None]:
    """Looks about 20 times a second for `_CLOSELY` seconds, in a thread of its own.

    Then it looks less often until the end of the block, or ends if a job `has_steps`: its probes say more.
    """
    stop = threading.Event()
    began = monotonic()

    def work() -> None:
        drawn = random.Random(0)  # noqa: S311 - no secret
        every = _EVERY
        while not stop.wait(drawn.uniform(0.5, 1.5) * every):
            sampler.look(monotonic())
            if monotonic() - began > _CLOSELY:
                if has_steps():
                    return
                every = _EVERY_LATER

    sampler.look(began)
    thread = threading.Thread(target=work, name="thread activities", daemon=True)
    thread.start()
    try:
        yield
    finally:
        stop.set()
        thread.join()


@dataclass(slots=True)
class _Before:
    """The counters of a thread at the first look at it, in ns, and the time of that look in s."""

    at: float
    cpu: int
    cpu_wait: int


class _Program:
    """The looks at one process."""

    def __init__(self, folder: Path, pid: int) -> None:
        self._folder = folder
        self._pid = pid
        self._threads: dict[int, tuple[SampledThread, _Before]] = {}
        self._locks: list[tuple[int, int]] = []
        self._command: tuple[str, ...] = ()
        self._ancestors = ancestors_of(pid)
        self._cpus_allowed = cpus_allowed(pid)
        self._framework = Framework.NONE
        self._mapped_at = -_CHOOSE_EVERY
        self._used: list[tuple[float, float]] = []
        """The time of the first look and of the last one, each with the CPU time of the process, s."""

    def look(self, now: float) -> None:
        """Raises OSError if the process has ended."""
        if now - self._mapped_at >= _CHOOSE_EVERY:
            self._mapped_at = now
            self._command = command_of(self._pid) or self._command  # a launcher may have become another program
            self._locks = interpreter_data((self._folder / "maps").read_text(errors="replace"))
            self._framework = main_framework(frameworks_in(self._pid, self._folder.parent))
        fields = (self._folder / "stat").read_text(errors="replace").rpartition(")")[2].split()
        self._used[1:] = [(now, (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK"))]
        alive = sorted(int(task.name) for task in (self._folder / "task").iterdir())[:_MOST_THREADS]
        for tid in alive:
            with suppress(OSError, ValueError):
                self._count(tid, now)
        known = [tid for tid in alive if tid in self._threads]
        busiest = sorted(known, key=lambda tid: (tid != self._pid, -self._threads[tid][0].cpu))
        for tid in busiest[:_MOST_SAMPLED]:
            with suppress(OSError, ValueError, OverflowError):  # OverflowError: an address beyond any memory
                self._sample(tid)
        ended = sorted(self._threads.keys() - {*alive}, key=lambda tid: self._threads[tid][0].cpu)
        for tid in ended[: max(len(self._threads) - _MOST_THREADS // 2, 0)]:
            del self._threads[tid]  # pools start threads for each call: those that ended leave room for others

    def result(self) -> SampledProgram:
        """What was seen so far."""
        threads = [thread for thread, _ in self._threads.values() if thread.watched]
        threads.sort(key=lambda thread: (thread.tid != self._pid, -thread.cpu))
        (began, before), (ended, after) = (self._used[0], self._used[-1]) if self._used else ((0.0, 0.0), (0.0, 0.0))
        cpus = (after - before) / (ended - began) if ended > began else 0.0
        of_process = self._pid, self._command, self._ancestors, self._cpus_allowed, self._framework
        return SampledProgram(*of_process, cpus, ended - began, threads)

    def _count(self, tid: int, now: float) -> None:
        folder = self._folder / "task" / str(tid)
        cpu, cpu_wait, _ = map(int, (folder / "schedstat").read_text().split())
        if tid not in self._threads:
            if len(self._threads) >= _MOST_THREADS:
                return
            name = (folder / "comm").read_text(errors="replace").strip()
            self._threads[tid] = SampledThread(tid, name), _Before(now, cpu, cpu_wait)
            return
        thread, before = self._threads[tid]
        thread.watched = now - before.at
        thread.cpu = (cpu - before.cpu) / 1e9
        thread.cpu_wait = (cpu_wait - before.cpu_wait) / 1e9

    def _sample(self, tid: int) -> None:
        folder = self._folder / "task" / str(tid)
        thread, _ = self._threads[tid]
        # A thread gets its name after its start, and a launcher may have become another program.
        thread.name = (folder / "comm").read_text(errors="replace").strip()
        words = (folder / "syscall").read_text().split()
        if words[0] == "running":
            return
        swaps = b"swap" in (folder / "wchan").read_bytes()
        thread.waits[Activity.SWAP if swaps else self._activity(words)] += 1

    def _activity(self, words: list[str]) -> Activity:
        """What a thread waits for, by its system call: `-1`, or a number and six arguments (proc_pid_syscall(5))."""
        number, arguments = int(words[0]), [int(word, 16) for word in words[1:7]]
        if number < 0:
            return Activity.FAULT
        call = _CALLS.get(number, "")
        if call == "futex":
            is_gil = any(start <= arguments[0] < end for start, end in self._locks)
            return Activity.GIL if is_gil else Activity.LOCK
        if call == "fd":
            return self._kind_of(arguments[0])
        if call in _POLLS:
            return self._polled(call, arguments)
        return Activity(call) if call else Activity.UNKNOWN

    def _kind_of(self, descriptor: int) -> Activity:
        """What a descriptor is."""
        with suppress(OSError):
            target = str((self._folder / "fd" / str(descriptor)).readlink())
            return next((kind for start, kind in _TARGETS if target.startswith(start)), Activity.UNKNOWN)
        return Activity.UNKNOWN

    def _polled(self, call: str, arguments: list[int]) -> Activity:
        """What a thread waits for in poll(2), select(2) or epoll_wait(2)."""
        descriptors = {"poll": self._of_poll, "select": self._of_select, "epoll": self._of_epoll}[call](arguments)
        kinds = {self._kind_of(descriptor) for descriptor in descriptors[:_MOST_POLLED]}
        return next((kind for kind in _FIRST if kind in kinds), Activity.TIMER)

    def _of_poll(self, arguments: list[int]) -> list[int]:
        entries = self._memory(arguments[0], 8 * min(arguments[1], _MOST_POLLED))
        return [fd for fd, _, _ in struct.iter_unpack("=iHH", entries[: len(entries) // 8 * 8]) if fd >= 0]

    def _of_select(self, arguments: list[int]) -> list[int]:
        size = (min(arguments[0], 1024) + 7) // 8
        read, written = (self._memory(where, size) if where else b"" for where in arguments[1:3])
        bits = int.from_bytes(read, "little") | int.from_bytes(written, "little")
        return [number for number in range(bits.bit_length()) if bits >> number & 1]

    def _of_epoll(self, arguments: list[int]) -> list[int]:
        lines = (self._folder / "fdinfo" / str(arguments[0])).read_text().splitlines()
        return [int(line.split()[1]) for line in lines if line.startswith("tfd:")]

    def _memory(self, address: int, size: int) -> bytes:
        if not size:
            return b""
        with (self._folder / "mem").open("rb", buffering=0) as memory:
            memory.seek(address)
            return memory.read(size)


def interpreter_data(maps: str) -> list[tuple[int, int]]:
    """The address ranges of the Python interpreter's own variables, by the text of /proc/PID/maps.

    Of the locks, only that of the interpreter (the GIL) is there. The memory without a file behind the writable part of
    a file holds its variables that are zero at the start.
    """
    ranges: list[tuple[int, int]] = []
    follows = False
    for line in maps.splitlines():
        words = line.split(None, 5)
        start, end = (int(part, 16) for part in words[0].split("-"))
        path = words[5] if len(words) > 5 else ""
        name = path.rpartition("/")[2]
        if "w" in words[1] and name.startswith(("python", "libpython")):
            ranges.append((start, end))
            follows = True
        elif follows and not path and ranges[-1][1] == start:
            ranges[-1] = ranges[-1][0], end
        else:
            follows = False
    return ranges


def _numbers() -> Mapping[int, str]:
    """The system calls in which threads wait, by their numbers on this machine."""
    columns = {"x86_64": 0, "aarch64": 1}
    column = columns.get(platform.machine())
    if column is None:
        return {}
    return {numbers[column]: call for call, rows in _WAITS.items() for numbers in rows if numbers[column] >= 0}


_WAITS: Final[Mapping[str, tuple[tuple[int, int], ...]]] = {
    # read, write, readv, writev, pread64, pwrite64, preadv, pwritev, sendfile, ioctl
    "fd": ((0, 63), (1, 64), (19, 65), (20, 66), (17, 67), (18, 68), (295, 69), (296, 70), (40, 71), (16, 29)),
    # connect, accept, accept4, sendto, recvfrom, sendmsg, recvmsg, recvmmsg
    "socket": ((42, 203), (43, 202), (288, 242), (44, 206), (45, 207), (46, 211), (47, 212), (299, 243)),
    # fsync, fdatasync, sync_file_range, openat, newfstatat, getdents64, io_getevents, msync, flock
    "file": ((74, 82), (75, 83), (277, 84), (257, 56), (262, 79), (217, 61), (208, 4), (26, 227), (73, 32)),
    "futex": ((202, 98), (449, 449), (455, 455)),
    "poll": ((7, -1), (271, 73)),
    "select": ((23, -1), (270, 72)),
    "epoll": ((232, -1), (281, 22), (441, 441)),
    "timer": ((35, 101), (230, 115), (34, -1)),  # nanosleep, clock_nanosleep, pause
    "child": ((61, 260), (247, 95)),  # wait4, waitid
}
"""The numbers on x86-64 and on arm64."""
_CALLS: Final = _numbers()
_POLLS: Final = frozenset({"poll", "select", "epoll"})
_TARGETS: Final = (
    ("socket:", Activity.SOCKET),
    ("pipe:", Activity.PIPE),
    ("anon_inode:[eventfd]", Activity.LOCK),
    ("anon_inode:[timerfd]", Activity.TIMER),
    ("anon_inode:", Activity.UNKNOWN),
    ("/dev/nvidia", Activity.GPU_WAIT),
    ("/dev/kfd", Activity.GPU_WAIT),
    ("/", Activity.FILE),
)
"""By the beginning of the link in /proc/PID/fd."""
_FIRST: Final = (Activity.GPU_WAIT, Activity.SOCKET, Activity.PIPE, Activity.LOCK, Activity.FILE)
