"""A training job that divides its CPU time among operators, Python and another library, and says how.

    python job.py SECONDS [CUDART]

Its operators are those of PyTorch, or launches of a stand-in for CUDA. Twice it trains a step, says `training` and
waits for a line of its input. Then, again and again, it works for so many seconds of CPU time, says the seconds of each
activity, and waits for another line.
"""

import ctypes
import hashlib
import json
import sys
import time
from collections.abc import Callable


class Dim(ctypes.Structure):
    _fields_ = (("x", ctypes.c_uint), ("y", ctypes.c_uint), ("z", ctypes.c_uint))


def launches(path: str) -> Callable[[], None]:
    cudart = ctypes.CDLL(path)

    def launch() -> None:
        work = ctypes.c_uint64(8_000_000)  # ns
        arguments = (ctypes.c_void_p * 1)(ctypes.addressof(work))
        one = Dim(1, 1, 1)
        assert not cudart.cudaLaunchKernel(ctypes.c_void_p(1), one, one, arguments, ctypes.c_size_t(0), None)

    return launch


def products() -> Callable[[], None]:
    import torch

    torch.set_num_threads(1)
    left = torch.randn(700, 700, requires_grad=True)
    small = torch.randn(1000)

    def multiply() -> None:
        (left @ left).sum().backward()
        for _ in range(200):  # mostly in the C library, which allocates their results
            small.sort()

    return multiply


def count() -> object:
    total = 0
    for number in range(60_000):
        total += number * number % 7
    return [str(number) for number in range(10_000)], total


DATA = b"x" * 1_500_000


def digest() -> None:
    hashlib.sha256(DATA).digest()


operate = launches(sys.argv[2]) if len(sys.argv) > 2 else products()


def say(text: str) -> None:
    sys.stdout.write(f"{text}\n")
    sys.stdout.flush()
    sys.stdin.readline()


for _ in range(2):
    operate()
    say("training")
parts: dict[str, Callable[[], object]] = {"operator": operate, "python": count, "native": digest}
while True:
    spent = dict.fromkeys(parts, 0.0)
    while sum(spent.values()) < float(sys.argv[1]):
        for activity, part in parts.items():
            began = time.thread_time()
            part()
            spent[activity] += time.thread_time() - began
    say(json.dumps(spent))
