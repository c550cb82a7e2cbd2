"""The time of threads that call CUDA, by state, agrees with the program's own record."""

import json
import sys

from otel_zernel.batch import Batch
from otel_zernel.clock import SystemClock
from otel_zernel.testing import Dropped, make_context
from otel_zernel_receivers.ebpf.config import EbpfConfig
from otel_zernel_receivers.ebpf.tables.tables import THREADS_OF_PROCESS
from otel_zernel_receivers.ebpf.tables.thread_times import NAMES
from tests.receivers.ebpf.standin import Standin
from tests.receivers.ebpf.talking import talking
from tests.receivers.ebpf.watching import Watch, doubles

JOB = """
import ctypes, json, os, sys, threading, time
from collections import Counter
cudart = ctypes.CDLL(sys.argv[1])
spent = Counter()

def timed(state, function, *arguments):
    began = time.monotonic()
    function(*arguments)
    spent[state] += time.monotonic() - began

def launch(ns):
    work = ctypes.c_uint64(ns)
    arguments = (ctypes.c_void_p * 1)(ctypes.addressof(work))
    function, one = ctypes.c_void_p(1), Dim(1, 1, 1)
    assert not cudart.cudaLaunchKernel(function, one, one, arguments, ctypes.c_size_t(0), None)

class Dim(ctypes.Structure):
    _fields_ = [("x", ctypes.c_uint), ("y", ctypes.c_uint), ("z", ctypes.c_uint)]

def spin(seconds):
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        pass

def read_slowly():
    mine, others = os.pipe()
    threading.Timer(0.08, os.write, (others, b"x")).start()
    timed("io", os.read, mine, 1)

def lock_slowly():
    lock = threading.Lock()
    lock.acquire()
    threading.Timer(0.08, lock.release).start()
    timed("lock", lock.acquire)

print("ready", flush=True)
sys.stdin.readline()
launch(0)
print("attached", flush=True)
sys.stdin.readline()
began = time.monotonic()
for _ in range(4):
    launch(100_000_000)
    timed("gpu_wait", cudart.cudaDeviceSynchronize)
    timed("sleep", time.sleep, 0.06)
    timed("on_cpu", spin, 0.05)
    read_slowly()
    lock_slowly()
spent["all"] = time.monotonic() - began
print(json.dumps(spent), flush=True)
sys.stdin.readline()
"""
LEAST = {"gpu_wait": 4 * 0.05, "sleep": 4 * 0.05, "io": 4 * 0.04, "lock": 4 * 0.04}
"""Seconds: a part of what the program asks for, as its waits may begin late."""


def times(batch: Batch, metric: str, pid: int) -> dict[str, float]:
    return {name: sum(doubles(batch, metric, process_pid=pid, zernel_thread_state=name)) for name in NAMES}


def test_each_moment_of_a_thread_that_calls_cuda_is_in_the_state_that_it_was_in(watch: Watch, standin: Standin) -> None:
    with talking(sys.executable, "-c", JOB, standin.cudart) as process:
        watch.attach()
        assert process.ask() == "attached"
        watch.read()
        watch.taken()
        own = json.loads(process.ask())
        batch = watch.read()
    found = times(batch, "zernel.cuda.thread.time", process.pid)
    # Before and after its work the thread reads its input, which is I/O. A busy machine lets it wait for a CPU, and for
    # Python's lock, within the times that it measures.
    assert sum(found.values()) >= own["all"]
    for state in ("gpu_wait", "sleep"):
        assert LEAST[state] <= found[state] <= own[state] * 1.1, (found, own)
    assert LEAST["lock"] <= found["lock"] <= own["lock"] + own["all"] * 0.5, (found, own)
    assert found["io"] >= LEAST["io"], (found, own)
    assert found["on_cpu"] + found["descheduled"] >= own["on_cpu"] * 0.5, (found, own)
    assert times(batch, "zernel.cuda.lead_thread.time", process.pid) == found


def test_a_state_that_lasts_is_reported_before_it_ends(watch: Watch, standin: Standin) -> None:
    with standin.start(loads=["libcudart.so.12"]) as program:
        watch.attach()
        program.do("cudaLaunchKernel")
        watch.read()
        watch.taken()
        program.send("cudaLaunchKernel work=3000000000")
        program.send("cudaDeviceSynchronize")
        waited = 0.0
        while waited < 0.5:
            waited = times(watch.read(), "zernel.cuda.thread.time", program.pid)["gpu_wait"]
        assert not program.calls("cudaDeviceSynchronize")["end"][0]  # it has not returned
        program.kill()


def test_threads_that_end_make_room_for_others(loadable: None, standin: Standin) -> None:
    context = make_context(clock=SystemClock())
    rounds = 5  # of 8 threads each: more than there is room for at one time
    with (
        Watch(EbpfConfig(max_processes=2), context) as watch,
        standin.start(loads=["libcudart.so.12"]) as program,
    ):
        watch.attach()
        for _ in range(rounds):
            program.do("cudaLaunchKernel times=2 threads=8")
            assert sum(times(watch.read(), "zernel.cuda.thread.time", program.pid).values()) > 0
            watch.taken()
    assert rounds * 8 > 2 * THREADS_OF_PROCESS
    assert isinstance(context.drop, Dropped)
    assert not context.drop.counts["no_thread_times"]
