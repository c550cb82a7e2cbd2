"""A training job that hands something to another thread, or gets something from one, in each step.

    python queue_job.py

Twice it trains some steps, says `training` and waits for a line of its input. After a line `put` or `get`, each of its
next steps has a wait of about 10 ms for the other thread. Then it says `trained`, and waits for another line.
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
WAITS: dict[str, Callable[[], object]] = {"put": lambda: full.put(1), "get": empty.get, "": lambda: None}


def serve() -> None:
    while True:
        time.sleep(0.01)
        if full.full():
            full.get()
        if empty.empty():
            empty.put(1)


def train(wait: str, steps: int = 40) -> None:
    for _ in range(steps):
        (weights @ weights).sum().backward()
        WAITS[wait]()


threading.Thread(target=serve, daemon=True).start()
wait = ""
for text in chain(["training"] * 2, repeat("trained")):
    train(wait)
    sys.stdout.write(f"{text}\n")
    sys.stdout.flush()
    line = sys.stdin.readline()
    if not line:
        break
    wait = line.strip() if line.strip() in WAITS else ""
