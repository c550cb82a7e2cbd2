"""Waits that a training loop makes in its load, its forward pass and after its step, with the clock of its thread.

`python waits.py LOOP WAIT:PLACE,... FOLDER` trains with PyTorch, by a DataLoader if LOOP is `loader`. It writes
FOLDER/truth.0.json: its `pid`; its `marks`, a list of ["WAIT:PLACE", start, end] in ns of CLOCK_MONOTONIC; and for each
of them in `spent` how many ns the thread was on a CPU, waited for one, and was stopped by a quota, which is a part of
the wait. A helper process ends the waits, so that no other thread of this process needs the interpreter.
"""

import asyncio
import ctypes
import fcntl
import json
import mmap
import os
import select
import signal
import socket
import sqlite3
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from queue import Queue

DELAY_S = 0.02
PLANTS = 4
"""Times that each wait is made in each place."""
WARM_UP, COOL_DOWN = 40, 80
"""Steps without a wait at the begin, and slow ones at the end: the last reading counts them."""
FULL = 1 << 16
SIZE = 8 << 20
PAGE = 4096
MADV_PAGEOUT = 21
CPU_GROUPS = Path("/sys/fs/cgroup/cpu")


class Helper:
    """A process that does something after DELAY_S, and a folder for files."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.socket, theirs = socket.socketpair()
        self.orders, self.received = socket.socketpair()
        self.pipe, self.into_pipe = os.pipe()
        self.from_full, self.full = os.pipe()
        self.counter = os.eventfd(0)
        self.lock_file = os.open(folder / "lock", os.O_CREAT)
        self.child = os.fork()
        if not self.child:
            self._serve(theirs)

    def _serve(self, theirs: socket.socket) -> None:
        lock_file = os.open(self.folder / "lock", os.O_CREAT)
        while order := self.received.recv(1):
            if order == b"l":
                fcntl.flock(lock_file, fcntl.LOCK_EX)
                self.received.send(b"x")
            if order == b"b":
                end = time.monotonic() + 4 * DELAY_S
                while time.monotonic() < end:
                    pass
                continue
            time.sleep(DELAY_S)
            if order == b"s":
                theirs.send(b"x" * 20_000)
            elif order == b"p":
                os.write(self.into_pipe, b"x" * 600)
            elif order == b"f":
                os.read(self.from_full, 2 * FULL)
            elif order == b"l":
                fcntl.flock(lock_file, fcntl.LOCK_UN)
            elif order == b"e":
                os.eventfd_write(self.counter, 1)
        os._exit(0)

    def later(self, order: bytes) -> None:
        """Orders something."""
        self.orders.send(order)


Wait = Callable[[], object]
Preparation = Callable[[Helper], Wait]
"""Prepares a wait, and returns the function that waits."""


def cold_file(helper: Helper) -> Wait:
    file = _cold(helper)

    def wait() -> None:
        end = time.monotonic() + DELAY_S
        while time.monotonic() < end:
            os.lseek(file, 0, os.SEEK_SET)
            while os.read(file, FULL):
                pass
            os.posix_fadvise(file, 0, 0, os.POSIX_FADV_DONTNEED)
        os.close(file)

    return wait


def cold_map(helper: Helper) -> Wait:
    file = _cold(helper)
    pages = mmap.mmap(file, SIZE, prot=mmap.PROT_READ)
    pages.madvise(mmap.MADV_RANDOM)

    def wait() -> None:
        end = time.monotonic() + DELAY_S
        while time.monotonic() < end:
            sum(pages[at] for at in range(0, SIZE // 8, PAGE))
            pages.madvise(mmap.MADV_DONTNEED)
            os.posix_fadvise(file, 0, 0, os.POSIX_FADV_DONTNEED)
        os.close(file)

    return wait


def _cold(helper: Helper) -> int:
    """A file that the page cache does not have."""
    file = os.open(helper.folder / "cold", os.O_RDWR | os.O_CREAT)
    if not os.fstat(file).st_size:
        os.write(file, os.urandom(SIZE))
    os.fsync(file)
    os.posix_fadvise(file, 0, 0, os.POSIX_FADV_DONTNEED)
    return file


def swap(_: Helper, flags: int = mmap.MAP_PRIVATE) -> Wait:
    """Pages that the kernel has moved to a swap file."""
    pages = mmap.mmap(-1, SIZE, flags | mmap.MAP_ANONYMOUS)
    for at in range(0, SIZE, PAGE):
        pages[at] = 1
    address = ctypes.c_void_p(ctypes.addressof(ctypes.c_char.from_buffer(pages)))
    ctypes.CDLL(None).madvise(address, ctypes.c_size_t(SIZE), MADV_PAGEOUT)
    return lambda: sum(pages[at] for at in range(0, SIZE, PAGE))


def shared_swap(helper: Helper) -> Wait:
    """The same, of memory that processes share."""
    return swap(helper, mmap.MAP_SHARED)


def receive(helper: Helper) -> Wait:
    def wait() -> None:
        left = 20_000
        while left:
            left -= len(helper.socket.recv(left))

    helper.later(b"s")
    return wait


def resolve(helper: Helper) -> Wait:
    """As the resolver of the C library: poll, then recvfrom."""
    poll = select.poll()
    poll.register(helper.socket, select.POLLIN)
    helper.later(b"s")

    def wait() -> None:
        poll.poll(5000)
        left = 20_000
        while left:
            left -= len(helper.socket.recvfrom(left)[0])

    return wait


def pipe(helper: Helper) -> Wait:
    helper.later(b"p")
    return lambda: os.read(helper.pipe, 600)


def full_pipe(helper: Helper) -> Wait:
    os.set_blocking(helper.full, False)
    with suppress(BlockingIOError):
        while True:
            os.write(helper.full, b"x" * PAGE)
    os.set_blocking(helper.full, True)
    helper.later(b"f")
    return lambda: os.write(helper.full, b"x" * PAGE)


def queue(_: Helper) -> Wait:
    batches: Queue[int] = Queue()
    threading.Timer(DELAY_S, batches.put, (1,)).start()
    return batches.get


def lock(_: Helper) -> Wait:
    lock = threading.Lock()
    lock.acquire()
    threading.Timer(DELAY_S, lock.release).start()
    return lock.acquire


def lock_file(helper: Helper) -> Wait:
    helper.later(b"l")
    helper.orders.recv(1)

    def wait() -> None:
        fcntl.flock(helper.lock_file, fcntl.LOCK_EX)
        fcntl.flock(helper.lock_file, fcntl.LOCK_UN)

    return wait


def sleep(_: Helper) -> Wait:
    return lambda: time.sleep(DELAY_S)


def timer(_: Helper) -> Wait:
    return lambda: select.select([], [], [], DELAY_S)


def event_loop(_: Helper) -> Wait:
    return lambda: asyncio.run(asyncio.sleep(DELAY_S))


def fsync(helper: Helper) -> Wait:
    file = os.open(helper.folder / "log", os.O_CREAT | os.O_WRONLY)

    def wait() -> None:
        end = time.monotonic() + DELAY_S
        while time.monotonic() < end:
            os.pwrite(file, b"x" * FULL, 0)
            os.fsync(file)
        os.close(file)

    return wait


def database(helper: Helper) -> Wait:
    connection = sqlite3.connect(helper.folder / "log.db", isolation_level=None)
    connection.execute("pragma synchronous = full")
    connection.execute("create table if not exists log (step)")

    def wait() -> None:
        end = time.monotonic() + DELAY_S
        while time.monotonic() < end:
            connection.execute("insert into log values (1)")
        connection.close()

    return wait


def command(_: Helper) -> Wait:
    return lambda: subprocess.run(["sleep", str(DELAY_S)], check=True)


def output(_: Helper) -> Wait:
    return lambda: subprocess.run(["sh", "-c", f"sleep {DELAY_S}; echo x"], check=True, capture_output=True)


def child(_: Helper) -> Wait:
    pid = os.fork()
    if not pid:
        time.sleep(DELAY_S)
        os._exit(0)
    return lambda: os.waitpid(pid, 0)


def event(helper: Helper) -> Wait:
    helper.later(b"e")
    return lambda: os.eventfd_read(helper.counter)


def python(_: Helper) -> Wait:
    return _spin


def _spin() -> None:
    end = time.monotonic() + DELAY_S
    while time.monotonic() < end:
        sum(range(100))


def neighbour(helper: Helper) -> Wait:
    """Another process has the CPU."""
    cpus = os.sched_getaffinity(0)

    def wait() -> None:
        for pid in (0, helper.child):
            os.sched_setaffinity(pid, {min(cpus)})
        helper.later(b"b")
        end = time.monotonic() + 4 * DELAY_S
        while time.monotonic() < end:
            sum(range(100))
        os.sched_setaffinity(0, cpus)

    return wait


def interpreter(_: Helper) -> Wait:
    """Another thread has the interpreter."""
    is_over = threading.Event()
    threading.Thread(target=lambda: [sum(range(1000)) for _ in iter(is_over.is_set, True)]).start()

    def wait() -> None:
        end = time.monotonic() + 4 * DELAY_S
        while time.monotonic() < end:
            sum(range(100))
        is_over.set()

    return wait


def quota(_: Helper) -> Wait:
    """The control group of the process has used up its quota."""
    own_quota = own_group() / "cpu.cfs_quota_us"

    def wait() -> None:
        own_quota.write_text("4000")
        end = time.monotonic() + 15 * DELAY_S
        while time.monotonic() < end:
            sum(range(100))
        own_quota.write_text("-1")

    return wait


def own_group() -> Path:
    """The control group of this process, which has no quota yet."""
    return CPU_GROUPS / f"planted-{os.getpid()}"


def threads(_: Helper) -> Wait:
    """32 threads compute on all CPUs."""
    import torch

    batch = torch.ones(1 << 22)

    def wait() -> None:
        torch.set_num_threads(32)
        end = time.monotonic() + 2 * DELAY_S
        while time.monotonic() < end:
            batch.tanh()
        torch.set_num_threads(1)

    return wait


WAITS: dict[str, Preparation] = {
    wait.__name__: wait
    for wait in (
        *(cold_file, cold_map, swap, shared_swap, receive, resolve, pipe, full_pipe),
        *(queue, lock, lock_file, sleep, timer, event_loop),
        *(fsync, database, command, output, child, event, python, neighbour, interpreter, quota, threads),
    )
}


class Truth:
    """The waits that were made, and the clock of the thread that made them."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.marks: list[tuple[str, int, int]] = []
        self.spent: list[tuple[int, int, int]] = []
        self.next: tuple[str, str, Wait] | None = None
        self._thread = os.open("/proc/thread-self/schedstat", os.O_RDONLY)
        self._group = os.open(own_group() / "cpu.stat", os.O_RDONLY) if own_group().exists() else 0

    def at(self, place: str) -> None:
        """Makes the next wait if this is its place."""
        if self.next is None or self.next[1] != place:
            return
        name, _, wait = self.next
        self.next = None
        before = self._spent()
        start = time.monotonic_ns()
        wait()
        end = time.monotonic_ns()
        on_cpu, queued, stopped = (after - one for one, after in zip(before, self._spent(), strict=True))
        self.spent.append((on_cpu, queued, stopped))
        self.marks.append((f"{name}:{place}", start, end))

    def _spent(self) -> tuple[int, int, int]:
        """ns on a CPU, in the queue of a CPU, and for which a quota stopped the process."""
        words = os.pread(self._group, 200, 0).split() if self._group else (b"throttled_time", b"0")
        stopped = int(words[words.index(b"throttled_time") + 1])
        return time.thread_time_ns(), int(os.pread(self._thread, 100, 0).split()[1]), stopped


def train(truth: Truth, helper: Helper, loop: str, plants: list[str]) -> None:
    import torch
    from torch import nn
    from torch.utils.data import DataLoader, Dataset

    torch.set_num_threads(1)
    go = truth.folder / "go"

    class Samples(Dataset):  # type: ignore[misc]  # torch is unknown to mypy
        def __len__(self) -> int:
            return 1_000_000

        def __getitem__(self, index: int) -> torch.Tensor:
            truth.at("load")
            return torch.ones(64)

    class Layer(nn.Module):  # type: ignore[misc]
        def forward(self, inputs: torch.Tensor) -> torch.Tensor:
            truth.at("forward")
            return inputs

    samples = Samples()
    by_hand = (samples[number].unsqueeze(0) for number in range(len(samples)))
    model = nn.Sequential(nn.Linear(64, 256), Layer(), nn.ReLU(), nn.Linear(256, 10))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    ahead = [plant for plant in plants for _ in range(PLANTS)]
    free = WARM_UP
    for inputs in DataLoader(samples, batch_size=1) if loop == "loader" else by_hand:
        loss = model(inputs).square().mean()
        if free:
            free -= go.exists()
        elif truth.next is None:
            if not ahead:
                break
            wait, place = ahead.pop(0).split(":")
            truth.next = wait, place, WAITS[wait](helper)
            free = 0 if ahead else COOL_DOWN
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        truth.at("after_step")
        if not (go.exists() and ahead):
            time.sleep(DELAY_S)


def main() -> None:
    loop, plants, folder = sys.argv[1], sys.argv[2].split(","), Path(sys.argv[3])
    helper = Helper(folder)
    if "quota:" in sys.argv[2]:
        own_group().mkdir()
        (own_group() / "cgroup.procs").write_text(str(os.getpid()))
    truth = Truth(folder)
    train(truth, helper, loop, plants)
    os.kill(helper.child, signal.SIGKILL)
    os.waitpid(helper.child, 0)
    written = {"pid": os.getpid(), "loop": [], "marks": truth.marks, "spent": truth.spent}
    (folder / "truth.0.json").write_text(json.dumps(written))
    if own_group().exists():
        (CPU_GROUPS / "cgroup.procs").write_text(str(os.getpid()))
        own_group().rmdir()


if __name__ == "__main__":
    main()
