"""A job of ranks on gloo that hangs in a chosen way, or only takes long: `hangs.py KIND STEPS SECONDS`.

One rank is guilty, after so many steps, when it touches the file `HANGS_BEGAN`. The launcher starts the ranks, and ends
them after so many seconds. If `HANGS_SPAWN` is set, it starts them by multiprocessing: no environment has their ranks.
"""

import asyncio
import ctypes
import multiprocessing
import os
import signal
import socket
import subprocess
import sys
import threading
import time
import urllib.request
from pathlib import Path
from typing import Any

ALONE = ("debugs", "learns", "idles")
"""Kinds of a job with one rank: others would wait for it."""
GUILTY = dict.fromkeys(("checkpoint", "logger", *ALONE), 0)
"""The guilty rank, if it is not rank 1."""
RANKS = {"order": 3, "count": 3, **dict.fromkeys(ALONE, 1)}
"""The number of ranks, if it is not 2: with three, it is clear which one differs."""
LONG = 90
"""Seconds for which a rank is busy."""


def launch(kind: str, steps: str, seconds: float) -> None:
    with socket.socket() as free, socket.create_server(("127.0.0.1", 0)) as silent:
        free.bind(("127.0.0.1", 0))
        port, ranks = free.getsockname()[1], RANKS.get(kind, 2)
        free.close()
        common = {
            **os.environ,
            "WORLD_SIZE": str(ranks),
            "MASTER_ADDR": "127.0.0.1",
            "MASTER_PORT": str(port),
            "SILENT": f"http://127.0.0.1:{silent.getsockname()[1]}",
        }
        started: list[subprocess.Popen[bytes]] = []

        def start(role: str, rank: int) -> int:
            words, environment = [sys.executable, __file__, kind, steps, role], {**common, "RANK": str(rank)}
            started.append(subprocess.Popen(words, env=environment, stdin=subprocess.PIPE))
            return started[-1].pid

        signal.signal(signal.SIGTERM, lambda *_: sys.exit())
        try:
            if kind == "store":
                common |= {"STORE": str(start("store", -1)), "TORCHELASTIC_USE_AGENT_STORE": "True"}
            for rank in range(ranks):
                start("rank", rank)
            time.sleep(seconds)
        finally:
            for process in started:
                process.kill()


def spawn(kind: str, steps: int, seconds: float) -> None:
    ranks = RANKS.get(kind, 2)
    with socket.create_server(("127.0.0.1", 0)) as free:
        store = f"tcp://127.0.0.1:{free.getsockname()[1]}"
    context = multiprocessing.get_context("spawn")
    for rank in range(ranks):
        context.Process(target=train_spawned, args=(kind, steps, store, rank, ranks), daemon=True).start()
    time.sleep(seconds)


def train_spawned(kind: str, steps: int, store: str, rank: int, ranks: int) -> None:
    from torch import distributed

    distributed.init_process_group("gloo", init_method=store, rank=rank, world_size=ranks)
    train(kind, steps)


def serve() -> None:
    """Has the store of the job, as the agent of torchrun does."""
    from torch.distributed import TCPStore

    store = TCPStore("127.0.0.1", int(os.environ["MASTER_PORT"]), is_master=True, wait_for_workers=False)
    time.sleep(3600)
    del store


def be_rank(kind: str, steps: int) -> None:
    from torch import distributed

    distributed.init_process_group("gloo")
    train(kind, steps)


def train(kind: str, steps: int) -> None:
    import torch
    from torch import distributed

    is_guilty = distributed.get_rank() == GUILTY.get(kind, 1)
    torch.set_num_threads(1)
    model = torch.nn.Linear(64, 1)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    step = 0
    while True:
        if step == steps:
            if is_guilty:
                be_guilty(kind, model)
            elif kind in ("dead", "loader"):
                wait_for_the_dead(distributed)
            elif kind == "preprocess":
                distributed.barrier()
            elif kind == "store":
                new_group(distributed)
        optimizer.zero_grad()
        time.sleep(0.02)
        model(torch.ones(8, 64)).sum().backward()
        gradient = model.weight.grad
        if step == steps and is_guilty and kind == "order":
            distributed.barrier()
        if step == steps and kind == "size":
            gradient = torch.ones((2 if is_guilty else 1) << 20)
        distributed.all_reduce(gradient)
        if step == steps and kind == "order":
            distributed.barrier()
        optimizer.step()
        step += 1


def be_guilty(kind: str, model: Any) -> None:
    if began := os.environ.get("HANGS_BEGAN"):
        Path(began).touch()
    if kind == "checkpoint":
        save(model)
    elif action := globals().get(f"do_{kind}"):
        action()


def pipe() -> Path:
    path = Path(f"/tmp/hangs.{os.getpid()}")
    os.mkfifo(path)
    return path


def do_fifo() -> None:
    pipe().read_text()


def save(model: Any) -> None:
    import torch

    torch.save(model.state_dict(), pipe())


def do_lock() -> None:
    lock = threading.Lock()
    lock.acquire()
    lock.acquire()


def do_gil() -> None:
    def log() -> None:
        while True:
            time.sleep(0.01)

    threading.Thread(target=log, daemon=True).start()
    ctypes.PyDLL(None).sleep(600)


def do_stopped() -> None:
    os.kill(os.getpid(), signal.SIGSTOP)


def do_dead() -> None:
    os.kill(os.getpid(), signal.SIGKILL)


def do_count() -> None:
    """Has no batch left, as the first rank."""
    from torch import distributed

    distributed.barrier()


def do_preprocess() -> None:
    urllib.request.urlopen(os.environ["SILENT"]).read()


do_logger = do_preprocess


def do_store() -> None:
    from torch import distributed

    os.kill(int(os.environ["STORE"]), signal.SIGSTOP)
    new_group(distributed)


def new_group(distributed: Any) -> None:
    distributed.new_group([0, 1])


def do_worker() -> None:
    """Loads with a worker that has inherited a lock that is held."""
    import torch

    class Locked(torch.utils.data.Dataset):  # type: ignore[misc]  # there is no stub
        def __len__(self) -> int:
            return 8

        def __getitem__(self, index: int) -> int:
            with lock:
                return index

    lock = threading.Lock()
    with lock:
        list(torch.utils.data.DataLoader(Locked(), num_workers=1))


class Signalled:
    """A dataset whose worker gets a signal."""

    def __init__(self, number: signal.Signals) -> None:
        self.number = number

    def __len__(self) -> int:
        return 8

    def __getitem__(self, index: int) -> int:
        os.kill(os.getpid(), self.number)
        return index


def do_loader() -> None:
    """Loses a DataLoader worker, for example because memory was used up: PyTorch raises an error that ends the rank."""
    import torch

    list(torch.utils.data.DataLoader(Signalled(signal.SIGKILL), num_workers=1))


def do_paused() -> None:
    """Waits for a DataLoader worker that is stopped."""
    import torch

    list(torch.utils.data.DataLoader(Signalled(signal.SIGSTOP), num_workers=1))


def do_pool() -> None:
    """Waits for a worker of a pool that was killed, for example because memory was used up."""
    with multiprocessing.get_context("fork").Pool(2) as pool:
        pool.map(be_killed, range(2))


def be_killed(item: int) -> None:
    if item == 0:
        os.kill(os.getpid(), signal.SIGKILL)


def do_producer() -> None:
    """Waits for a process that was killed."""
    context = multiprocessing.get_context("fork")
    queue = context.Queue()
    context.Process(target=be_killed, args=(0,)).start()
    queue.get()


def do_computes() -> None:
    until = time.monotonic() + LONG
    while time.monotonic() < until:
        sum(range(10_000))


def do_writes() -> None:
    until = time.monotonic() + LONG
    path = Path(f"/tmp/hangs.{os.getpid()}")
    with path.open("wb") as file:
        while time.monotonic() < until:
            file.write(os.urandom(1 << 20))
            os.fsync(file.fileno())
            file.seek(0)
    path.unlink()


def do_asks() -> None:
    """Waits for the program that has started it."""
    input()


def do_restarts() -> None:
    """Fails, and is started again by torchrun."""
    if os.environ["TORCHELASTIC_RESTART_COUNT"] == "0":
        sys.exit(3)


def do_sleeps() -> None:
    time.sleep(LONG)


def do_evaluates() -> None:
    import torch

    model, until = torch.nn.Linear(512, 512), time.monotonic() + LONG
    with torch.no_grad():
        while time.monotonic() < until:
            model(torch.ones(512, 512)).mean().item()


def do_saves() -> None:
    """Writes a large checkpoint, part by part."""
    import torch

    until, path = time.monotonic() + LONG, Path(f"/tmp/hangs.{os.getpid()}")
    while time.monotonic() < until:
        torch.save({str(number): torch.ones(1 << 18) for number in range(32)}, path)
    path.unlink()


def do_compiles() -> None:
    import torch

    until, number = time.monotonic() + LONG, 0
    while time.monotonic() < until:
        number += 1
        torch._dynamo.reset()
        torch.compile(torch.nn.Sequential(*(torch.nn.Linear(8 + number, 8 + number) for _ in range(8))))(
            torch.ones(4, 8 + number)
        )


def do_debugs() -> None:
    """Is at the prompt of the debugger."""
    breakpoint()


def do_learns() -> None:
    """Waits for an actor, which plays for long."""
    context = multiprocessing.get_context("fork")
    queue = context.Queue()
    context.Process(target=play, args=(queue,)).start()
    queue.get()


def play(queue: Any) -> None:
    time.sleep(LONG)
    queue.put(1)


def do_idles() -> None:
    """Waits for the next cell, as the kernel of a notebook."""
    asyncio.run(asyncio.sleep(3600))


def wait_for_the_dead(distributed: Any) -> None:
    distributed.distributed_c10d._get_default_store().get("never")


if __name__ == "__main__":
    if sys.argv[3] == "store":
        serve()
    elif "HANGS_SPAWN" in os.environ:
        spawn(sys.argv[1], int(sys.argv[2]), float(sys.argv[3]))
    elif "RANK" in os.environ:  # of this launcher, or of torchrun
        be_rank(sys.argv[1], int(sys.argv[2]))
    else:
        launch(sys.argv[1], sys.argv[2], float(sys.argv[3]))
