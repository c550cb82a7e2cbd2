"""A training job that waits in known Python frames, and says which.

    python waiting_job.py CUDART

Twice it calls CUDA, says `training` and waits for a line of its input. Then it says the address of the code of a
function, sleeps there three times for 0.1 s, and after another line 250 times for 1 ms.
"""

import ctypes
import sys
import time

cudart = ctypes.CDLL(sys.argv[1])


def say(text: str) -> None:
    sys.stdout.write(f"{text}\n")
    sys.stdout.flush()
    sys.stdin.readline()


def sleep(seconds: float) -> None:
    time.sleep(seconds)


for _ in range(2):
    cudart.cudaDeviceSynchronize()
    say("training")
say(str(id(sleep.__code__)))
for _ in range(3):
    sleep(0.1)
say("slept")
for _ in range(250):
    sleep(0.001)
say("slept")
