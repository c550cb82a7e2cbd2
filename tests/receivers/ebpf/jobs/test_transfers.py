"""The bytes that a thread reads and receives are in its snapshots, by whatever system call it gets them."""

from tests.receivers.ebpf.jobs.python_job import gap_of, python_job
from tests.receivers.ebpf.standin import Standin
from tests.receivers.ebpf.watching import Watch

JOB = """
import os, socket, tempfile, threading
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
