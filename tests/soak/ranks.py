"""A rank with workers on the stand-in for PyTorch; run by test_workers.py.

    python ranks.py FOLDER WORKERS

Makes a backward pass every 50 ms. Each worker has PyTorch's name for workers of a DataLoader, and makes a probed call
every 100 ms. Ends with its input.
"""

import ctypes
import os
import select
import sys

PR_SET_NAME = 15  # prctl(2)


def work(folder: str) -> None:
    ctypes.CDLL(None).prctl(PR_SET_NAME, b"pt_data_worker")
    torch_cpu = ctypes.CDLL(f"{folder}/libtorch_cpu.so")
    while not ended(0.1):
        torch_cpu["_ZN2at14RecordFunction3endEv"](None)


def ended(timeout: float) -> bool:
    return bool(select.select([sys.stdin], [], [], timeout)[0])


def main(folder: str, workers: int) -> None:
    torch_python = ctypes.CDLL(f"{folder}/libtorch_python.so")
    ctypes.CDLL(f"{folder}/libtorch_cpu.so")
    for _ in range(workers):
        if not os.fork():
            work(folder)
            os._exit(0)
    while not ended(0.05):
        torch_python.backward()


if __name__ == "__main__":
    main(sys.argv[1], int(sys.argv[2]))
