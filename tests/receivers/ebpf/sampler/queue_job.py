"""A training job that waits in each step: to hand something to another thread, to get something, for a lock, or asleep.

    python queue_job.py

Twice it trains some steps, says `training` and waits for a line of its input. After a line `put`, `get` or `lock`, each
of its next steps has a wait of about 10 ms for the other thread after the backward pass. After `sleep` it sleeps before
it. Then it says `trained`, and waits for another line.
"""

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
FIRST: dict[str, Callable[[], object]] = {"sleep": lambda: time.sleep(0.01)}
LAST: dict[str, Callable[[], object]] = {"put": lambda: full.put(1), "get": empty.get, "lock": lock.acquire}


def serve() -> None:
    while True:
        time.sleep(0.01)
        if full.full():
            full.get()
        if empty.empty():
            empty.put(1)
        if lock.locked():
            lock.release()


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
