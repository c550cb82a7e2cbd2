"""A training process with workers by multiprocessing, on the stand-in for PyTorch; run by test_workers.py.

    python train_workers.py FOLDER METHOD COUNT [early] [unnamed] [alien]

Makes a backward pass, then starts COUNT workers by METHOD; with `early`, the workers come first. They have the name
that PyTorch gives its workers; with `unnamed`, they share a tensor, as those of PyTorch before 2.6 do; with `alien`,
they are no workers and have neither. Each worker reads a file, uses the CPU for `CPU` seconds, makes a probed call
every 10 ms, and ends with the exit code that it is sent.

Prints the pids of the workers as JSON when all have worked. A line `train` starts a child that makes a backward pass,
and prints its pid. A line `quiet` starts a worker that makes no probed call, and prints its pid when it has worked.
A line `exit CODE` ends the first worker that lives (with -1, it takes all memory), and a line `step` makes one more
backward pass. Ends when its input ends.
"""

import ctypes
import json
import mmap
import multiprocessing
import os
import sys
import time
from collections.abc import Callable
from multiprocessing.connection import Connection
from pathlib import Path

CPU = 0.1
READS, SIZE = 8, 1 << 16
CHANNELS: list[Connection] = []
"""Those of children. A closed one would end its child."""


def say(line: object) -> None:
    sys.stdout.write(f"{line}\n")
    sys.stdout.flush()


def libraries(folder: str) -> tuple[ctypes.CDLL, ctypes.CDLL]:
    return ctypes.CDLL(f"{folder}/libtorch_cpu.so"), ctypes.CDLL(f"{folder}/libtorch_python.so")


def call(folder: str) -> None:
    """The end of an operator's scope: every operator of PyTorch makes this call."""
    libraries(folder)[0]["_ZN2at14RecordFunction3endEv"](None)


def name_like_pytorch() -> None:
    """As torch.multiprocessing._set_thread_name does."""
    ctypes.CDLL(None).prctl(15, b"pt_data_worker", 0, 0, 0)


def share_a_tensor() -> mmap.mmap:
    """As PyTorch does, by file descriptor: the file has no name any more."""
    path = Path(f"/dev/shm/torch_{os.getpid()}_1_0")
    path.write_bytes(bytes(4096))
    with path.open("r+b") as file:
        path.unlink()
        return mmap.mmap(file.fileno(), 4096)


KINDS: dict[str, Callable[[], object]] = {"named": name_like_pytorch, "unnamed": share_a_tensor, "alien": lambda: None}


def read_and_compute(folder: str) -> None:
    with (Path(folder) / "data").open("rb", buffering=0) as data:
        for _ in range(READS):
            data.read(SIZE)
    while time.process_time() < CPU:
        pass


def work(folder: str, orders: Connection, kind: str) -> None:
    kept = KINDS[kind]()
    call(folder)
    read_and_compute(folder)
    orders.send(os.getpid())
    parent = multiprocessing.parent_process()
    while not orders.poll(0.01):
        call(folder)
        if parent is None or not parent.is_alive():
            sys.exit()
    del kept
    if (code := orders.recv()) < 0:
        exhaust_memory()
    sys.exit(code)


def exhaust_memory() -> None:
    taken = []
    while True:
        taken.append(b"\1" * (1 << 22))


def train(folder: str, done: Connection) -> None:
    call(folder)
    libraries(folder)[1].backward()
    done.send(os.getpid())
    done.recv()


def work_quietly(folder: str, done: Connection) -> None:
    name_like_pytorch()
    read_and_compute(folder)
    done.send(os.getpid())
    done.recv()


def child_of(folder: str, work: Callable[[str, Connection], None]) -> int:
    """Forks a child; returns its pid when it is done."""
    context = multiprocessing.get_context("fork")
    here, there = context.Pipe()
    CHANNELS.append(here)
    context.Process(target=work, args=(folder, there), daemon=True).start()
    pid: int = here.recv()
    return pid


def main(folder: str, method: str, count: int, *, early: bool, kind: str) -> None:
    (Path(folder) / "data").write_bytes(bytes(READS * SIZE))
    multiprocessing.set_start_method(method)
    pipes = [multiprocessing.Pipe() for _ in range(count)]
    workers = [multiprocessing.Process(target=work, args=(folder, there, kind)) for _, there in pipes]
    torch_python = libraries(folder)[1]
    say("ready")
    input()
    if not early:
        torch_python.backward()
    for worker in workers:
        worker.start()
    say(json.dumps([here.recv() for here, _ in pipes]))
    torch_python.backward()
    for line in sys.stdin:
        order, *code = line.split()
        if order == "step":
            torch_python.backward()
            say("stepped")
        elif order in ("train", "quiet"):
            say(child_of(folder, train if order == "train" else work_quietly))
        else:
            worker, (here, _) = next(pair for pair in zip(workers, pipes, strict=True) if pair[0].is_alive())
            here.send(int(code[0]))
            worker.join()
            say("ended")
    for worker in workers:
        worker.kill()


if __name__ == "__main__":
    chosen = next((kind for kind in KINDS if kind in sys.argv), "named")
    main(sys.argv[1], sys.argv[2], int(sys.argv[3]), early="early" in sys.argv, kind=chosen)
