"""Threads that each wait for something else, with the names of what they wait for. Prints `ready` when all do."""

import ctypes
import os
import select
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable


def named(name: str, work: Callable[[], object]) -> None:
    """Starts a thread with this name in the kernel."""

    def run() -> None:
        ctypes.CDLL(None).prctl(15, name.encode(), 0, 0, 0)
        work()

    threading.Thread(target=run, daemon=True).start()


def spin() -> None:
    """Computes in Python."""
    while True:
        sum(range(1000))


locked, (near, far), (reader, writer) = threading.Lock(), socket.socketpair(), os.pipe()
locked.acquire()
epoll = select.epoll()
epoll.register(near, select.EPOLLIN)
poll = select.poll()
poll.register(reader, select.POLLIN)
child = subprocess.Popen(["sleep", "600"])
waits: dict[str, Callable[[], object]] = {
    "timer": lambda: time.sleep(600),
    "lock": locked.acquire,
    "socket": lambda: near.recv(1),
    "socket epoll": lambda: epoll.poll(600),
    "pipe": lambda: os.read(reader, 1),
    "pipe poll": lambda: poll.poll(600_000),
    "pipe select": lambda: select.select([reader], [], [], 600),
    "timer select": lambda: select.select([], [], [], 600),
    "child": child.wait,
    "timer nowhere": lambda: ctypes.CDLL(None).poll(ctypes.c_void_p(1 << 63), 0, 600_000),
}
for name, work in waits.items():
    named(name, work)
if "gil" in sys.argv:
    named("gil 1", spin)
    named("gil 2", spin)
sys.stdout.write("ready\n")
sys.stdout.flush()
sys.stdin.read()
child.kill()
