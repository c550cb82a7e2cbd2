"""A thread that waits inside a call of CUDA is in the state of the thing that it waits for."""

import pytest

from otel_zernel_libraries.training.ledger import Activity
from tests.receivers.ebpf.jobs.python_job import gap_of, python_job
from tests.receivers.ebpf.standin import Standin
from tests.receivers.ebpf.watching import Watch

JOB = """
import threading, time
cudart = ctypes.CDLL(f"{sys.argv[1]}/libcudart.so.12")
MILLISECOND = 1_000_000
LOADED = 1 << 40

class Dim(ctypes.Structure):
    _fields_ = [("x", ctypes.c_uint), ("y", ctypes.c_uint), ("z", ctypes.c_uint)]

def launch(ns, function=LOADED):
    work, one = ctypes.c_uint64(ns), Dim(1, 1, 1)
    arguments = (ctypes.c_void_p * 1)(ctypes.addressof(work))
    assert not cudart.cudaLaunchKernel(ctypes.c_void_p(function), one, one, arguments, ctypes.c_size_t(0), None)

def memory():
    pointer = ctypes.c_void_p()
    assert not cudart.cudaMalloc(ctypes.byref(pointer), ctypes.c_size_t(4096))
    return pointer

def fill_queue():
    def fill():
        for _ in range(1024 + 80):
            launch(MILLISECOND)
    return fill

def load_function():
    return lambda: [launch(0, 100 << 20) for _ in range(5)]

def wait_for_lock_of_driver():
    pointer = memory()
    launch(80 * MILLISECOND)
    other = threading.Thread(target=cudart.cudaFree, args=(pointer,))
    other.start()
    time.sleep(0.01)  # until it waits, and holds the lock
    return lambda: launch(0, 1)

def free():
    pointer = memory()
    launch(80 * MILLISECOND)
    return lambda: cudart.cudaFree(pointer)

launch(0)
"""
WAITS = {
    "fill_queue": Activity.LAUNCH_BLOCKED,
    "load_function": None,
    "wait_for_lock_of_driver": Activity.LOCK,
    "free": Activity.GPU_WAIT,
}
LEAST = 0.03


@pytest.mark.parametrize("name", WAITS)
def test_a_wait_inside_a_call_is_for_what_the_thread_waits(watch: Watch, standin: Standin, name: str) -> None:
    with python_job(standin, JOB) as process:
        watch.attach()
        seconds = gap_of(watch, process, name).seconds
    spent = {state: time for state, time in seconds.items() if time > 0.005}
    spent.pop(Activity.CPU_WAIT, None)
    assert max(spent, key=spent.__getitem__) is WAITS[name], spent
    assert spent[WAITS[name]] > LEAST
    if name != "fill_queue":
        assert Activity.LAUNCH_BLOCKED not in spent
