"""The bytes that a thread reads and writes are in its snapshots, by whatever system call, with its waits to write."""

import pytest

from otel_zernel_libraries.training.ledger import Activity
from tests.receivers.ebpf.jobs.python_job import gap_of, python_job
from tests.receivers.ebpf.standin import Standin
from tests.receivers.ebpf.watching import Watch

JOB = """
import contextlib, os, socket, tempfile, threading
SIZE = 30_000

class Header(ctypes.Structure):
    _fields_ = [("name", ctypes.c_void_p), ("name_size", ctypes.c_uint), ("parts", ctypes.c_void_p),
                ("part_count", ctypes.c_size_t), ("control", ctypes.c_void_p), ("control_size", ctypes.c_size_t),
                ("flags", ctypes.c_size_t), ("received", ctypes.c_uint)]

class Part(ctypes.Structure):
    _fields_ = [("at", ctypes.c_void_p), ("size", ctypes.c_size_t)]

def whole(receive):
    mine, others = socket.socketpair()
    others.sendall(b"x" * SIZE)
    def work():
        left = SIZE
        while left:
            left -= receive(mine, left)
    return work

def recv():
    return whole(lambda mine, left: len(mine.recv(min(left, 1000))))

def recvfrom():
    return whole(lambda mine, left: len(mine.recvfrom(left)[0]))

def recvmsg():
    return whole(lambda mine, left: len(mine.recvmsg(left)[0]))

def read():
    return whole(lambda mine, left: len(os.read(mine.fileno(), left)))

def recvmmsg():
    mine, others = socket.socketpair(socket.AF_UNIX, socket.SOCK_DGRAM)
    for _ in range(3):
        others.send(b"x" * (SIZE // 3))
    room = ctypes.create_string_buffer(SIZE)
    parts = (Part * 3)(*(Part(ctypes.addressof(room) + i * SIZE // 3, SIZE // 3) for i in range(3)))
    headers = (Header * 3)(*(Header(parts=ctypes.addressof(part), part_count=1) for part in parts))
    receive = ctypes.CDLL(None).recvmmsg
    def work():
        assert receive(mine.fileno(), headers, 3, 0, None) == 3, (others, room, parts)
    return work

def pread():
    file = tempfile.TemporaryFile()
    file.write(b"x" * SIZE)
    file.flush()
    return lambda: os.pread(file.fileno(), SIZE, 0)

def recv_in_another_thread():
    work = recv()
    def in_another_thread():
        other = threading.Thread(target=work)
        other.start()
        other.join()
    return in_another_thread

def send():
    mine, others = socket.socketpair()
    return lambda: [mine.send(b"x" * (SIZE // 3)) for _ in range(3)] and others

def sendmsg():
    mine, others = socket.socketpair()
    return lambda: mine.sendmsg([b"x" * SIZE]) and others

def write():
    file = tempfile.TemporaryFile()
    return lambda: os.write(file.fileno(), b"x" * SIZE)

def write_slowly():
    mine, others = os.pipe()
    os.set_blocking(others, False)
    with contextlib.suppress(BlockingIOError):
        while True:
            os.write(others, b"x" * 4096)
    os.set_blocking(others, True)
    threading.Timer(0.1, os.read, (mine, SIZE)).start()
    return lambda: os.write(others, b"x" * 4096)

def read_slowly():
    mine, others = os.pipe()
    threading.Timer(0.1, os.write, (others, b"x")).start()
    return lambda: os.read(mine, 1)

def fork():
    def fork_twice():
        for _ in range(2):
            child = os.fork()
            if not child:
                os._exit(0)
            os.waitpid(child, 0)
        threading.Thread(target=nothing).start()
    return fork_twice

def nothing():
    pass
"""


def test_all_bytes_that_a_thread_gets_are_counted(watch: Watch, standin: Standin) -> None:
    ways = ("recv", "recvfrom", "recvmsg", "recvmmsg", "read", "pread")
    others = ("recv_in_another_thread", "nothing")
    with python_job(standin, JOB) as process:
        watch.attach()
        read = {name: gap_of(watch, process, name).read for name in (*ways, *others)}
    assert read == dict.fromkeys(ways, 30_000) | dict.fromkeys(others, 0)


def test_all_bytes_that_a_thread_writes_are_counted(watch: Watch, standin: Standin) -> None:
    ways, others = ("send", "sendmsg", "write"), ("recv", "nothing")
    with python_job(standin, JOB) as process:
        watch.attach()
        written = {name: gap_of(watch, process, name).written for name in (*ways, *others)}
    assert written == dict.fromkeys(ways, 30_000) | dict.fromkeys(others, 0)


def test_a_wait_to_write_is_told_from_a_wait_to_read(watch: Watch, standin: Standin) -> None:
    with python_job(standin, JOB) as process:
        watch.attach()
        writing, reading = (gap_of(watch, process, name) for name in ("write_slowly", "read_slowly"))
    assert writing.seconds[Activity.PIPE] >= 0.04
    assert writing.writing == pytest.approx(writing.seconds[Activity.PIPE], rel=0.01)
    assert reading.seconds[Activity.PIPE] >= 0.04
    assert reading.writing == 0


def test_the_processes_that_a_thread_starts_are_counted(watch: Watch, standin: Standin) -> None:
    with python_job(standin, JOB) as process:
        watch.attach()
        assert [gap_of(watch, process, name).forks for name in ("fork", "nothing")] == [2, 0]
