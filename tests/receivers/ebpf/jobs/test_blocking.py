"""A thread that blocks is in the state of the thing that it waits for, by its system call and the kind of the file."""

import json
import os
import subprocess
from collections.abc import Iterator
from itertools import islice
from pathlib import Path

import psutil
import pytest

from otel_zernel_libraries.training.ledger import Activity
from tests.receivers.ebpf.control_groups import control_group
from tests.receivers.ebpf.jobs.operator_runs import KNOWS_FILE_FAULTS
from tests.receivers.ebpf.jobs.python_job import gap_of, python_job
from tests.receivers.ebpf.standin import Standin
from tests.receivers.ebpf.watching import Watch

JOB = """
import asyncio, fcntl, mmap, os, select, socket, subprocess, threading, time
folder = sys.argv[2]
DELAY = 0.1
SIZE = 16 << 20

def later(function, *arguments):
    threading.Timer(DELAY, function, arguments).start()
    backward()  # to start a thread takes a lock

def receive():
    mine, others = socket.socketpair()
    later(others.send, b"x")
    mine.recv(1)

def receive_with_timeout():
    mine, others = socket.socketpair()
    mine.settimeout(9)
    later(others.send, b"x")
    mine.recv(1)

def select_socket():
    mine, others = socket.socketpair()
    later(others.send, b"x")
    select.select([mine], [], [], 9)

def ask_by_datagram():
    server, mine = (socket.socket(socket.AF_INET, socket.SOCK_DGRAM) for _ in range(2))
    server.bind(("127.0.0.1", 0))
    mine.bind(("127.0.0.1", 0))
    mine.connect(server.getsockname())
    mine.send(b"x")
    poll = select.poll()
    poll.register(mine, select.POLLIN)
    later(server.sendto, b"x", mine.getsockname())
    poll.poll(5000)

def read_in_asyncio():
    mine, others = socket.socketpair()
    async def main():
        reader, writer = await asyncio.open_connection(sock=mine)
        later(others.send, b"x")
        await asyncio.wait_for(reader.read(1), 9)
        writer.close()
    asyncio.run(main())

def sleep_in_asyncio():
    mine, others = socket.socketpair()
    async def main():
        reader, writer = await asyncio.open_connection(sock=mine)
        await asyncio.sleep(DELAY)
        writer.close()
    asyncio.run(main())

def wait_for_edges_of_socket():
    mine, others = socket.socketpair()
    epoll = select.epoll()
    epoll.register(os.eventfd(0), select.EPOLLIN | select.EPOLLET)
    epoll.register(mine, select.EPOLLIN | select.EPOLLET)
    later(others.send, b"x")
    assert epoll.poll()

def wait_in_epoll_for_pipe():
    mine, others = os.pipe()
    epoll = select.epoll()
    epoll.register(os.eventfd(0), select.EPOLLIN)
    epoll.register(mine, select.EPOLLIN)
    later(os.write, others, b"x")
    assert epoll.poll(9)

def accept():
    server = socket.create_server(("127.0.0.1", 0))
    later(socket.create_connection, server.getsockname())
    server.accept()

def read_pipe():
    mine, others = os.pipe()
    later(os.write, others, b"x")
    os.read(mine, 1)

def write_full_pipe():
    mine, others = os.pipe()
    os.set_blocking(others, False)
    try:
        while True:
            os.write(others, b"x" * 65536)
    except BlockingIOError:
        os.set_blocking(others, True)
    later(os.read, mine, 1 << 20)
    os.write(others, b"x" * 65536)

def poll_pipes():
    pairs = [os.pipe() for _ in range(4)]
    poll = select.poll()
    for mine, _ in pairs:
        poll.register(mine, select.POLLIN)
    later(os.write, pairs[2][1], b"x")
    poll.poll(9000)

def acquire():
    lock = threading.Lock()
    lock.acquire()
    later(lock.release)
    lock.acquire()

def lock_file():
    mine, others = (open(f"{folder}/lock", "a") for _ in range(2))
    fcntl.flock(others, fcntl.LOCK_EX)
    later(fcntl.flock, others, fcntl.LOCK_UN)
    fcntl.flock(mine, fcntl.LOCK_EX)

def sleep():
    time.sleep(DELAY)

def select_nothing():
    select.select([], [], [], DELAY)

def wait_for_child():
    child = subprocess.Popen(["sleep", str(DELAY)])
    os.waitpid(child.pid, 0)

def read_counter():
    counter = os.eventfd(0)
    later(os.eventfd_write, counter, 1)
    os.eventfd_read(counter)

def synchronize():
    with open(f"{folder}/file", "wb") as file:
        end = time.monotonic() + DELAY
        while time.monotonic() < end:
            file.write(b"x" * 65536)
            file.flush()
            os.fsync(file.fileno())

def write_directly():
    file = os.open(f"{folder}/direct", os.O_CREAT | os.O_RDWR | os.O_DIRECT)
    data = mmap.mmap(-1, 1 << 20)
    end = time.monotonic() + DELAY
    while time.monotonic() < end:
        os.pwrite(file, data, 0)

def touch(data):
    for page in range(0, len(data), 4096):
        data[page]

def touch_cold_file():
    with open(f"{folder}/cold", "wb+") as file:
        file.write(b"x" * SIZE)
        file.flush()
        os.fsync(file.fileno())
        os.posix_fadvise(file.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)
        data = mmap.mmap(file.fileno(), SIZE, prot=mmap.PROT_READ)
    return lambda: touch(data)

def thrash(flags=mmap.MAP_PRIVATE):
    limit = int(sys.argv[3])
    data = mmap.mmap(-1, 2 * limit, flags=flags | mmap.MAP_ANONYMOUS)
    for page in range(0, 2 * limit, 4096):
        data[page] = 1
    return lambda: touch(data)

def thrash_shared():
    return thrash(mmap.MAP_SHARED)

def python_in_two_threads():
    over = threading.Event()
    def spin():
        while not over.is_set():
            sum(range(100))
    other = threading.Thread(target=spin)
    other.start()
    end = time.monotonic() + 0.4
    while time.monotonic() < end:
        sum(range(100))
    over.set()
    other.join()
"""
WAITS = {
    "receive": Activity.SOCKET,
    "receive_with_timeout": Activity.SOCKET,
    "select_socket": Activity.SOCKET,
    "ask_by_datagram": Activity.SOCKET,
    "read_in_asyncio": Activity.SOCKET,
    "sleep_in_asyncio": Activity.TIMER,
    "wait_for_edges_of_socket": Activity.SOCKET,
    "wait_in_epoll_for_pipe": Activity.PIPE,
    "accept": Activity.SOCKET,
    "read_pipe": Activity.PIPE,
    "write_full_pipe": Activity.PIPE,
    "poll_pipes": Activity.PIPE,
    "acquire": Activity.LOCK,
    "lock_file": Activity.LOCK,
    "sleep": Activity.TIMER,
    "select_nothing": Activity.TIMER,
    "wait_for_child": Activity.CHILD,
    "read_counter": Activity.UNKNOWN,
    "synchronize": Activity.FILE,
    "write_directly": Activity.FILE,
    "touch_cold_file": Activity.FAULT,
}
OTHERS = (None, Activity.CPU_WAIT, Activity.GIL)
"""States on a busy machine: the thread that ends the wait holds the interpreter's lock, or the CPU."""
LEAST = 0.04
LEAST_OF_DISK = 0.001
SHARE = 0.98


def test_a_thread_that_blocks_is_in_the_state_of_its_wait(watch: Watch, standin: Standin, tmp_path: Path) -> None:
    wrong = {}
    with python_job(standin, JOB, str(tmp_path)) as process:
        watch.attach()
        for name, state in WAITS.items():
            seconds = gap_of(watch, process, name).seconds
            blocked = sum(time for other, time in seconds.items() if other not in OTHERS)
            is_disk = state in (Activity.FILE, Activity.FAULT)  # a fast disk blocks for a part of the time only
            if seconds[state] < SHARE * blocked or blocked < (LEAST if not is_disk else LEAST_OF_DISK):
                wrong[name] = {str(other): round(time, 4) for other, time in seconds.items() if time}
    assert not wrong, json.dumps(wrong, indent=1)


MEMORY = 32 << 20
"""The bytes that the job with a swap file may use."""


@pytest.fixture
def small_group(tmp_path: Path) -> Iterator[Path]:
    """A control group with little memory, on a machine with a swap file."""
    swap = tmp_path / "swap"
    with swap.open("wb") as file:
        os.posix_fallocate(file.fileno(), 0, 4 * MEMORY)
    swap.chmod(0o600)
    for command in ("mkswap", "swapon"):
        made = subprocess.run([command, swap], check=False, capture_output=True, text=True)
        if made.returncode:
            pytest.skip(f"no swap file: {made.stderr}")
    with control_group(("memory", "memory.limit_in_bytes", str(MEMORY)), (".", "memory.max", str(MEMORY))) as group:
        yield group
        subprocess.run(["swapoff", swap], check=True)


@pytest.mark.skipif(not KNOWS_FILE_FAULTS, reason="before Linux 6.2, waits for swap are `fault`")
@pytest.mark.parametrize("name", ["thrash", "thrash_shared"])
def test_a_thread_that_waits_for_a_page_from_swap_is_in_a_state_of_its_own(
    small_group: Path, fresh_watch: Watch, standin: Standin, tmp_path: Path, name: str
) -> None:
    seconds = seconds_in(small_group, fresh_watch, standin, tmp_path, name)
    assert seconds[Activity.SWAP] > LEAST
    assert seconds[Activity.SWAP] > 20 * seconds[Activity.FAULT]


@pytest.mark.skipif(not KNOWS_FILE_FAULTS, reason="before Linux 6.2, waits for swap are `fault`")
@pytest.mark.skipif(psutil.swap_memory().total > 0, reason="this machine has swap")
def test_without_swap_at_its_start_a_receiver_takes_no_wait_for_shared_memory_for_swap(
    fresh_watch: Watch, small_group: Path, standin: Standin, tmp_path: Path
) -> None:
    seconds = seconds_in(small_group, fresh_watch, standin, tmp_path, "thrash_shared")
    assert seconds[Activity.FAULT] > LEAST
    assert seconds[Activity.FAULT] > seconds[Activity.SWAP]


def seconds_in(
    small_group: Path, watch: Watch, standin: Standin, tmp_path: Path, name: str
) -> dict[Activity | None, float]:
    """The time of a function of the job by activity, with little memory."""
    with python_job(standin, JOB, str(tmp_path), str(MEMORY)) as process:
        (small_group / "cgroup.procs").write_text(str(process.pid))
        watch.attach()
        return gap_of(watch, process, name).seconds


def test_a_thread_that_waits_for_the_interpreter_s_lock_is_in_a_state_of_its_own(
    watch: Watch, standin: Standin, tmp_path: Path
) -> None:
    with python_job(standin, JOB, str(tmp_path)) as process:
        watch.attach()
        runs = (gap_of(watch, process, "python_in_two_threads").seconds for _ in range(60))
        found = (run[Activity.GIL] > max(0.05, 10 * run[Activity.LOCK]) for run in runs)
        assert any(found), "the interpreter is found some time after the start"
        # On a busy machine, a thread may have little to wait for.
        assert sum(islice(found, 5)) >= 3
