"""A training job that is in known Python frames, and says which.

    python deep_job.py SECONDS CUDART

Twice it calls CUDA, says `training` and waits for a line of its input. Then it says the addresses of the code of its
frames, the innermost first, with the length of each code. It stays in them for so many seconds of CPU time, and after
another line as long in 60 frames.
"""

import ctypes
import json
import sys
import time

cudart = ctypes.CDLL(sys.argv[2])


def say(text: str) -> None:
    sys.stdout.write(f"{text}\n")
    sys.stdout.flush()


def inner(end: float) -> None:
    while time.thread_time() < end:
        pass


def middle(end: float) -> None:
    inner(end)


def outer(end: float) -> None:
    list(map(middle, [end]))  # a call from C


def deep(depth: int, end: float) -> None:
    if depth:
        deep(depth - 1, end)
    else:
        inner(end)


def after(seconds: float) -> float:
    return time.thread_time() + seconds


for _ in range(2):
    cudart.cudaDeviceSynchronize()
    say("training")
    sys.stdin.readline()
codes = [one.__code__ for one in (inner, middle, outer)] + [sys._getframe().f_code]
say(json.dumps([(id(code), len(code.co_code)) for code in codes]))
outer(after(float(sys.argv[1])))
say("deeper")
sys.stdin.readline()
deep(60, after(float(sys.argv[1])))
say("done")
sys.stdin.readline()
