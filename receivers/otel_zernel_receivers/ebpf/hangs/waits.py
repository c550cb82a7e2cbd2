"""The activity of a thread now, and the object of its wait, from its system call and the arguments of that.

The kernel's programs find the activities of threads that make marks in the same way, when they leave the CPU
(bpf/blocking.bpf.h). This module needs no program in the kernel, and also names the object.
"""

import struct
from collections.abc import Callable, Collection, Mapping, Sequence
from contextlib import suppress
from typing import Final

from otel_zernel_libraries.training.ledger import Activity
from otel_zernel_libraries.training.stacks import STANDARD_INPUT
from otel_zernel_receivers.ebpf.hangs.descriptors import NOT_KNOWN, Described, Descriptors
from otel_zernel_receivers.ebpf.hangs.tasks import Task

_VERBS: Final[Mapping[str, str]] = {
    **dict.fromkeys(("read", "pread64", "readv", "preadv", "preadv2"), "reads"),
    **dict.fromkeys(("recvfrom", "recvmsg", "recvmmsg"), "reads from"),
    **dict.fromkeys(("write", "pwrite64", "writev", "pwritev", "pwritev2", "splice", "sendfile"), "writes"),
    **dict.fromkeys(("sendto", "sendmsg", "sendmmsg"), "writes to"),
    **dict.fromkeys(("fsync", "fdatasync", "sync_file_range", "syncfs"), "writes to the disk"),
    **dict.fromkeys(("accept", "accept4"), "waits for"),
    "connect": "connects to",
    "ioctl": "controls",
    "close": "closes",
    "flock": "waits for the lock of",
    "fcntl": "waits for the lock of",
}
"""System calls whose first argument is a descriptor."""
_ON_PATHS: Final = {"open": 0, "openat": 1, "openat2": 1, "stat": 0, "lstat": 0, "newfstatat": 1, "statx": 1}
"""System calls with a path, and the number of its argument."""
_OF_MEMORY: Final = ("mmap", "munmap", "mprotect", "brk", "madvise")
_STOPPED_BY: Final = {"T": "a signal", "t": "a debugger"}
_LONGEST_PATH: Final = 256
_MOST_POLLED: Final = 8
_MOST_SELECTED: Final = 1_024
"""Descriptors: the C library has no set that is larger."""
_POLLED: Final = struct.Struct("<ihh")
_MUTEX: Final = struct.Struct("<IIi")
"""glibc and musl begin `pthread_mutex_t` with the futex. In glibc the owner follows after a counter."""

Memory = Callable[[int, int], bytes]
"""Reads up to so many bytes from an address of the process. Raises OSError."""


class Waits:
    """The waits of the threads of one process at one moment."""

    def __init__(
        self,
        memory: Memory,
        descriptors: Descriptors,
        threads: Mapping[int, str],
        own_tids: Mapping[int, int],
        gil: range,
        gil_holder: int,
        children: Mapping[int, str],
    ) -> None:
        """`threads` and `children` are names by id. `own_tids` are threads by the ids that they have themselves.
        `gil_holder` is the thread that holds the GIL; 0 if it is free."""
        self._memory, self._descriptors, self._threads, self._own_tids = memory, descriptors, threads, own_tids
        self._gil, self._gil_holder, self._children = gil, gil_holder, children

    def of(self, task: Task) -> Described:
        """The activity and the object of a thread that does not run."""
        if task.is_stopped:
            return Described(Activity.UNKNOWN, f"stopped by {_STOPPED_BY.get(task.state, 'the freezer of its cgroup')}")
        if not task.call:
            is_fault = task.state == "D"
            return Described(Activity.FAULT, "waits for a page of memory") if is_fault else NOT_KNOWN
        if task.call in _VERBS:
            return self._on_descriptor(task)
        if task.call in _ON_PATHS:
            return self._on_path(task)
        match task.call:
            case "futex" | "futex_waitv":
                return self._lock(task)
            case "wait4" | "waitid":
                return self._child(task)
            case "clone" | "clone3" | "vfork":
                return Described(Activity.CHILD, "starts a process")
            case "nanosleep" | "clock_nanosleep":
                return Described(Activity.TIMER, "sleeps")
            case "poll" | "ppoll":
                return self._any_of(self._polled(task), task, is_timed=_has_timeout(task))
            case "select" | "pselect6":
                return self._any_of(self._selected(task), task, is_timed=bool(task.arguments[4]))
            case "epoll_wait" | "epoll_pwait" | "epoll_pwait2":
                return self._any_of(self._descriptors.watched_by(task.arguments[0]), task)
            case "io_getevents" | "io_uring_enter" | "sync":
                return Described(Activity.FILE, "")
            case call if call in _OF_MEMORY:
                return Described(Activity.FAULT, "waits for memory")
        return Described(Activity.FILE if task.state == "D" else Activity.UNKNOWN, "")

    def _on_descriptor(self, task: Task) -> Described:
        described = self._described(task.arguments[0] & 0xFFFFFFFF, task)
        activity = Activity.LOCK if task.call in ("flock", "fcntl") else described.activity
        return Described(activity, f"{_VERBS[task.call]} {described.text}" if described.text else "")

    def _described(self, number: int, task: Task) -> Described:
        """The object of a descriptor."""
        describe = self._descriptors.describe(number, task.place)
        is_input = number == 0 and describe.text and describe.activity is not Activity.FILE
        return describe._replace(text=f"{STANDARD_INPUT} ({describe.text})") if is_input else describe

    def _on_path(self, task: Task) -> Described:
        with suppress(OSError):
            path = (
                self._memory(task.arguments[_ON_PATHS[task.call]], _LONGEST_PATH)
                .partition(b"\0")[0]
                .decode(errors="replace")
            )
            verb = "opens" if task.call.startswith("open") else "looks for"
            if "fifo" in task.place or "wait_for_partner" in task.place:
                return Described(Activity.PIPE, f"opens the pipe {path}, which no other process has opened")
            return Described(Activity.FILE, f"{verb} {self._descriptors.describe_path(path).text}")
        return Described(Activity.FILE, "")

    def _lock(self, task: Task) -> Described:
        address = task.arguments[0]
        if address in self._gil:
            return Described(Activity.GIL, f"the GIL{self._held(self._gil_holder, task)}")
        with suppress(OSError, struct.error):
            is_locked, _, own_tid = _MUTEX.unpack(self._memory(address, _MUTEX.size))
            if is_locked and (owner := self._own_tids.get(own_tid, 0)):
                return Described(Activity.LOCK, f"the lock{self._held(owner, task)}")
        return Described(Activity.LOCK, "")

    def _held(self, owner: int, task: Task) -> str:
        if owner == task.tid:
            return " that it holds itself"
        return f", which thread {owner} ({self._threads[owner]}) holds" if owner in self._threads else ""

    def _child(self, task: Task) -> Described:
        pid = task.arguments[task.call == "waitid"] & 0xFFFFFFFF
        if pid in self._children:
            return Described(Activity.CHILD, f"waits for the end of child {pid} ({self._children[pid]})")
        return Described(Activity.CHILD, "waits for the end of a child")

    def _polled(self, task: Task) -> Sequence[int]:
        at, count = task.arguments[0], min(task.arguments[1], _MOST_POLLED)
        with suppress(OSError, struct.error):
            return [number for number, *_ in _POLLED.iter_unpack(self._memory(at, count * _POLLED.size))]
        return ()

    def _selected(self, task: Task) -> Sequence[int]:
        """The descriptors that it reads, else those that it writes."""
        count = min(task.arguments[0], _MOST_SELECTED)
        for at in task.arguments[1:3]:
            with suppress(OSError):
                bits = int.from_bytes(self._memory(at, (count + 7) // 8), "little") if at and count else 0
                if bits:
                    return [number for number in range(count) if bits >> number & 1][:_MOST_POLLED]
        return ()

    def _any_of(self, numbers: Collection[int], task: Task, *, is_timed: bool = False) -> Described:
        """A wait for one of several descriptors, with a timeout or without."""
        described = [self._described(number, task) for number in list(numbers)[:_MOST_POLLED]]
        known = [each for each in described if each.text]
        if not known:
            return Described(Activity.TIMER, "sleeps") if is_timed and not numbers else NOT_KNOWN
        activities = {each.activity for each in known}
        texts = " or ".join(dict.fromkeys(each.text for each in known))
        return Described(activities.pop() if len(activities) == 1 else Activity.UNKNOWN, f"waits for {texts}")


def _has_timeout(task: Task) -> bool:
    timeout = task.arguments[2]
    return bool(timeout) if task.call == "ppoll" else timeout & 0x80000000 == 0 and timeout > 0
