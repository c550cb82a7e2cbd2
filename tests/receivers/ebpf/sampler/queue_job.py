"""A training job that waits or computes in each step.

    python queue_job.py

Twice it trains some steps, says `training` and waits for a line of its input. Each of its next steps waits or computes
for about 10 ms. Before the backward pass: `sleep`; `loop`, a sleep in an event loop; `batch`, it computes. After it:
`put`, `get`, `lock` and `read`, it waits for another thread, to hand something on, to get it, for a lock, or for a
pipe; `report`, it computes. Then it says `trained`, and waits for another line.
"""

import asyncio
import os
import sys
import threading
import time
from collections.abc import Callable
from itertools import chain, repeat
from queue import Queue

import torch

torch.set_num_threads(1)
full: Queue[int] = Queue(maxsize=1)
empty: Queue[int] = Queue(maxsize=1)
weights = torch.randn(8, 8, requires_grad=True)
lock = threading.Lock()
reader, writer = os.pipe()
is_asked = threading.Event()


def compute() -> None:
    end = time.monotonic() + 0.01
    while time.monotonic() < end:
        sum(range(100))


def ask() -> None:
    is_asked.set()
    os.read(reader, 1)


FIRST: dict[str, Callable[[], object]] = {
    "sleep": lambda: time.sleep(0.01),
    "loop": lambda: asyncio.run(asyncio.sleep(0.01)),
    "batch": compute,
}
LAST: dict[str, Callable[[], object]] = {
    "put": lambda: full.put(1),
    "get": empty.get,
    "lock": lock.acquire,
    "read": ask,
    "report": compute,
}


def serve() -> None:
    while True:
        time.sleep(0.01)
        if full.full():
            full.get()
        if empty.empty():
            empty.put(1)
        if lock.locked():
            lock.release()
        if is_asked.is_set():
            is_asked.clear()
            os.write(writer, b"x")


def train(wait: str, steps: int = 40) -> None:
    first, last = FIRST.get(wait, int), LAST.get(wait, int)
    for _ in range(steps):
        first()
        (weights @ weights).sum().backward()
        last()


threading.Thread(target=serve, daemon=True).start()
wait = ""
for text in chain(["training"] * 2, repeat("trained")):
    train(wait)
    sys.stdout.write(f"{text}\n")
    sys.stdout.flush()
    line = sys.stdin.readline()
    if not line:
        break
    wait = line.strip()
