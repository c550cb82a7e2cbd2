"""A job of three ranks on gloo that hangs in a chosen way, or only takes long: `hangs.py KIND STEPS SECONDS`.

Rank 1 is guilty, after so many steps, when it touches the file `HANGS_BEGAN`. The launcher starts the ranks, and ends
them after so many seconds.
"""

import os
import signal
import socket
import subprocess
import sys
import threading
import time
from pathlib import Path

RANKS = 3
GUILTY = 1


def launch(kind: str, steps: str, seconds: float) -> None:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    common = {**os.environ, "WORLD_SIZE": str(RANKS), "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(port)}
    ranks = [
        subprocess.Popen([sys.executable, __file__, kind, steps, "rank"], env={**common, "RANK": str(rank)})
        for rank in range(RANKS)
    ]
    signal.signal(signal.SIGTERM, lambda *_: sys.exit())
    try:
        time.sleep(seconds)
    finally:
        for rank in ranks:
            rank.kill()


def train(kind: str, steps: int) -> None:
    import torch
    from torch import distributed

    distributed.init_process_group("gloo")
    is_guilty = distributed.get_rank() == GUILTY
    torch.set_num_threads(1)
    model = torch.nn.Linear(64, 1)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    step = 0
    while True:
        if step == steps:
            if is_guilty:
                be_guilty(kind)
            elif kind == "dead":
                wait_for_the_dead(distributed)
        optimizer.zero_grad()
        time.sleep(0.02)
        model(torch.ones(8, 64)).sum().backward()
        gradient = model.weight.grad
        if step == steps and is_guilty and kind == "order":
            distributed.barrier()
        distributed.all_reduce(gradient)
        if step == steps and kind == "order":
            distributed.barrier()
        optimizer.step()
        step += 1


def be_guilty(kind: str) -> None:
    if began := os.environ.get("HANGS_BEGAN"):
        Path(began).touch()
    if kind == "fifo":
        path = Path(f"/tmp/hangs.{os.getpid()}")
        os.mkfifo(path)
        path.read_text()
    elif kind == "lock":
        lock = threading.Lock()
        lock.acquire()
        lock.acquire()
    elif kind == "stopped":
        os.kill(os.getpid(), signal.SIGSTOP)
    elif kind == "dead":
        os.kill(os.getpid(), signal.SIGKILL)
    elif kind == "computes":
        until = time.monotonic() + 30
        while time.monotonic() < until:
            sum(range(10_000))
    elif kind == "writes":
        write_for(30)
    elif kind == "sleeps":
        time.sleep(30)


def write_for(seconds: float) -> None:
    until = time.monotonic() + seconds
    path = Path(f"/tmp/hangs.{os.getpid()}")
    with path.open("wb") as file:
        while time.monotonic() < until:
            file.write(os.urandom(1 << 20))
            os.fsync(file.fileno())
            file.seek(0)
    path.unlink()


def wait_for_the_dead(distributed: object) -> None:
    distributed.distributed_c10d._get_default_store().get("never")  # type: ignore[attr-defined]  # it is the module


if __name__ == "__main__":
    if sys.argv[3] == "rank":
        train(sys.argv[1], int(sys.argv[2]))
    else:
        launch(sys.argv[1], sys.argv[2], float(sys.argv[3]))
