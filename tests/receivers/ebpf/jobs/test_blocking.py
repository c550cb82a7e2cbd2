"""A thread that blocks is in the state of the thing that it waits for, by its system call and the kind of the file."""

import json
from pathlib import Path

from otel_zernel_libraries.training.ledger import Activity
from tests.receivers.ebpf.jobs.python_job import gap_of, python_job
from tests.receivers.ebpf.standin import Standin
from tests.receivers.ebpf.watching import Watch

JOB = """
import fcntl, mmap, os, select, selectors, socket, subprocess, threading, time
folder = sys.argv[2]
DELAY = 0.06

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
            is_disk = state is Activity.FILE  # a fast disk blocks for a part of the time only
            if seconds[state] < SHARE * blocked or blocked < (LEAST if not is_disk else LEAST_OF_DISK):
                wrong[name] = {str(other): round(time, 4) for other, time in seconds.items() if time}
    assert not wrong, json.dumps(wrong, indent=1)


def test_a_thread_that_waits_for_the_interpreter_s_lock_is_in_a_state_of_its_own(
    watch: Watch, standin: Standin, tmp_path: Path
) -> None:
    with python_job(standin, JOB, str(tmp_path)) as process:
        watch.attach()
        seconds: dict[Activity | None, float] = {}
        for _ in range(60):  # until the interpreter has been found
            seconds = gap_of(watch, process, "python_in_two_threads").seconds
            if seconds[Activity.GIL]:
                break
        seconds = gap_of(watch, process, "python_in_two_threads").seconds
    assert seconds[Activity.GIL] > 10 * seconds[Activity.LOCK]
    assert seconds[Activity.GIL] > 0.05
