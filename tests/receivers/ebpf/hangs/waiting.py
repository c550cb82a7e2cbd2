"""A program whose main thread waits for something known, or runs: `python waiting.py KIND FOLDER`.

It says `ready` and then waits.
"""

import ctypes
import fcntl
import functools
import hashlib
import os
import signal
import socket
import subprocess
import sys
import threading
import time
from pathlib import Path
from typing import Any

KIND, FOLDER = sys.argv[1], Path(sys.argv[2])


def lock() -> None:
    lock = threading.Lock()
    with lock:
        lock.acquire()


def sleep_often() -> None:
    while True:
        time.sleep(0.001)


def gil() -> None:
    threading.Thread(target=sleep_often, daemon=True).start()
    ctypes.PyDLL(None).sleep(60)


def mutex() -> None:
    libc, place = ctypes.CDLL(None), ctypes.create_string_buffer(64)
    libc.pthread_mutex_lock(place)
    libc.pthread_mutex_lock(place)


def pipe_of_child() -> None:
    reader, writer = os.pipe()
    with subprocess.Popen(["sleep", "60"], pass_fds=[writer]):
        os.close(writer)
        os.read(reader, 1)


def fifo() -> None:
    os.mkfifo(FOLDER / "fifo")
    (FOLDER / "fifo").open().close()


def connection() -> None:
    with socket.create_server(("127.0.0.1", 0)) as server, socket.create_connection(server.getsockname()) as client:
        (FOLDER / "port").write_text(str(server.getsockname()[1]))
        client.recv(1)


def server() -> None:
    with socket.create_server(("127.0.0.1", 0)) as listening:
        (FOLDER / "port").write_text(str(listening.getsockname()[1]))
        listening.accept()


def file_lock() -> None:
    with (FOLDER / "lock").open("w") as first, (FOLDER / "lock").open("w") as second:
        fcntl.flock(first, fcntl.LOCK_EX)
        fcntl.flock(second, fcntl.LOCK_EX)


def many_descriptors() -> None:
    """The kernel looks only at those that can be."""
    reader, _ = os.pipe()
    bits = (ctypes.c_uint64 * 16)(1 << reader)
    ctypes.CDLL(None).select(2**31 - 1, bits, None, None, None)


def odd_name() -> None:
    path = os.fsencode(FOLDER) + b"/f\xe9"
    os.mkfifo(path)
    os.close(os.open(path, os.O_RDONLY))


def program() -> None:
    subprocess.run(["sleep", "60"], check=True)


def stopped() -> None:
    os.kill(os.getpid(), signal.SIGSTOP)


def zombie() -> None:
    child = os.fork()
    if not child:
        os._exit(3)
    time.sleep(60)


def siblings() -> None:
    for _ in range(2):
        if not os.fork():
            time.sleep(60)
    time.sleep(60)


def asks() -> None:
    sys.stdin.read()


def asleep() -> None:
    time.sleep(60)


def naps() -> None:
    sleep_often()


def checkout() -> None:
    """A file of the mapped PyTorch calls one of the user with the same name."""
    library = FOLDER / "pytorch/torch/lib/libtorch_python.so"
    library.parent.mkdir(parents=True)
    maps = Path("/proc/self/maps").read_text().splitlines()
    library.write_bytes(
        Path(next(line.split()[-1] for line in maps if "/libm." in line or "/libm-" in line)).read_bytes()
    )
    ctypes.CDLL(str(library))
    call = asleep
    for folder in ("mine", "pytorch"):
        names: dict[str, Any] = {"call": call}
        exec(compile("def forward(): call()", FOLDER / folder / "torch/nn/modules/linear.py", "exec"), names)
        call = names["forward"]
    call()


def polls() -> None:
    """Runs in C, below a function of PyTorch that waits for the GPU."""
    names = {"call": functools.partial(hashlib.pbkdf2_hmac, "sha256", b"", b"", 1 << 30)}
    file = FOLDER / "site-packages/torch/cuda/__init__.py"
    exec(compile("def synchronize(): call()", file, "exec"), names)
    names["synchronize"]()


def busy() -> None:
    while True:
        pass


sys.stdout.write("ready\n")
sys.stdout.flush()
globals()[KIND]()
