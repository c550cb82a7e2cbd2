"""A training process with workers by multiprocessing, on the stand-in for PyTorch; run by test_workers.py.

    python train_workers.py FOLDER METHOD COUNT [early]

Makes a backward pass, then starts COUNT workers by METHOD; with `early`, the workers come first. Each worker reads a
file, uses the CPU for `CPU` seconds, makes a probed call every 10 ms, and ends with the exit code that it is sent.

Prints the pids of the workers as JSON when all have worked. A line `train` starts a child that makes a backward pass,
and prints its pid. A line `exit CODE` ends the first worker that lives (with -1,
it takes all memory), and a line `step` makes one more
backward pass. Ends when its input ends.
"""

import ctypes
import json
import multiprocessing
import os
import sys
import time
from multiprocessing.connection import Connection
from pathlib import Path

CPU = 0.1
READS, SIZE = 8, 1 << 16


def say(line: object) -> None:
    sys.stdout.write(f"{line}\n")
    sys.stdout.flush()


def libraries(folder: str) -> tuple[ctypes.CDLL, ctypes.CDLL]:
    return ctypes.CDLL(f"{folder}/libtorch_cpu.so"), ctypes.CDLL(f"{folder}/libtorch_python.so")


def call(folder: str) -> None:
    """The end of an operator's scope: every operator of PyTorch makes this call."""
    libraries(folder)[0]["_ZN2at14RecordFunction3endEv"](None)


def work(folder: str, orders: Connection) -> None:
    call(folder)
    with (Path(folder) / "data").open("rb", buffering=0) as data:
        for _ in range(READS):
            data.read(SIZE)
    while time.process_time() < CPU:
        pass
    orders.send(os.getpid())
    parent = multiprocessing.parent_process()
    while not orders.poll(0.01):
        call(folder)
        if parent is None or not parent.is_alive():
            sys.exit()
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


def main(folder: str, method: str, count: int, *, early: bool) -> None:
    (Path(folder) / "data").write_bytes(bytes(READS * SIZE))
    multiprocessing.set_start_method(method)
    pipes = [multiprocessing.Pipe() for _ in range(count)]
    workers = [multiprocessing.Process(target=work, args=(folder, there)) for _, there in pipes]
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
        elif order == "train":
            here, there = multiprocessing.get_context("fork").Pipe()
            multiprocessing.get_context("fork").Process(target=train, args=(folder, there), daemon=True).start()
            say(here.recv())
        else:
            worker, (here, _) = next(pair for pair in zip(workers, pipes, strict=True) if pair[0].is_alive())
            here.send(int(code[0]))
            worker.join()
            say("ended")
    for worker in workers:
        worker.kill()


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2], int(sys.argv[3]), early="early" in sys.argv)
