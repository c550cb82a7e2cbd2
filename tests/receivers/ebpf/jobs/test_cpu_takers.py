"""Who takes the CPU from a thread of a job: another process, another thread of its own, or the quota of its group."""

import os
import signal
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path

import pytest

from otel_zernel.batch import Batch
from otel_zernel_libraries.training.ledger import Activity
from tests.receivers.ebpf.control_groups import control_group
from tests.receivers.ebpf.jobs.operator_runs import (
    GRAD_OFF,
    GRAD_ON,
    difference,
    operators_of,
    runs_of,
    snapshots_of,
)
from tests.receivers.ebpf.standin import Standin
from tests.receivers.ebpf.talking import Talker, talking
from tests.receivers.ebpf.watching import Watch, doubles, numbers

TAKEN = "zernel.process.cpu.taken.time"
WATCHED_S = 2.0
CPU = max(os.sched_getaffinity(0))

JOB = """
import ctypes, hashlib, os, sys, threading, time
os.sched_setaffinity(0, {int(sys.argv[2])})
call = ctypes.CDLL(sys.argv[1])["_ZN2at14RecordFunction3endEv"]
data = bytes(1 << 20)

def hash_for_ever():
    while True:
        hashlib.sha256(data)

for _ in range(int(sys.argv[3])):
    threading.Thread(target=hash_for_ever, daemon=True).start()
call(None)
print("ready", flush=True)
sys.stdin.readline()
while True:
    call(None)
    hashlib.sha256(data)
"""
NEIGHBOUR = """
import ctypes, os, sys
os.sched_setaffinity(0, {int(sys.argv[1])})
ctypes.CDLL(None).prctl(15, b"noisy", 0, 0, 0)
print("ready", flush=True)
while True: pass
"""


def started(*command: str, into: str = "") -> AbstractContextManager[Talker]:
    """A program that has said that it is ready, in a control group."""
    enter = f'echo $$ > {into}/cgroup.procs && exec "$@"' if into else 'exec "$@"'
    return talking("sh", "-c", enter, "-", *command)


@contextmanager
def working(watch: Watch, standin: Standin, threads: int = 0, into: str = "") -> Iterator[int]:
    """The pid of a job on one CPU whose main thread computes, besides other threads of its own."""
    library = str(standin.folder / "libtorch_cpu.so")
    with started(sys.executable, "-c", JOB, library, str(CPU), str(threads), into=into) as job:
        watch.attach()
        job.say()
        yield job.pid


def read_until(watch: Watch, is_enough: Callable[[Batch], bool]) -> Batch:
    """What the session reads until there is enough, for a minute at most."""
    for _ in range(60):
        time.sleep(WATCHED_S / 4)
        if is_enough(batch := watch.read()):
            return batch
    return batch


def test_a_neighbour_on_the_same_cpu_takes_it(watch: Watch, standin: Standin) -> None:
    with started(sys.executable, "-c", NEIGHBOUR, str(CPU)), working(watch, standin) as pid:
        batch = read_until(watch, lambda batch: sum(noisy(batch, pid)) >= WATCHED_S / 4)
    assert sum(noisy(batch, pid)) >= WATCHED_S / 4
    own = sum(doubles(batch, TAKEN, process_pid=pid, zernel_cpu_taker="self"))
    assert own < sum(noisy(batch, pid)) / 10, "it has no other thread"


def noisy(batch: Batch, pid: int) -> list[float]:
    return doubles(batch, TAKEN, process_pid=pid, zernel_cpu_taker="other", zernel_cpu_taker_name="noisy")


def test_other_threads_of_the_process_take_its_cpu(watch: Watch, standin: Standin) -> None:
    def own(batch: Batch) -> float:
        return sum(doubles(batch, TAKEN, process_pid=pid, zernel_cpu_taker="self"))

    with working(watch, standin, threads=15) as pid:
        batch = read_until(watch, lambda batch: own(batch) >= WATCHED_S / 2)
    assert own(batch) >= WATCHED_S / 2
    assert numbers(batch, "zernel.process.threads.runnable", process_pid=pid)[-1] >= 8
    assert doubles(batch, "zernel.process.cpus", process_pid=pid)[-1] == 1


def test_a_pass_goes_on_while_another_process_has_the_cpu(watch: Watch, standin: Standin) -> None:
    """After a sample the thread runs for less time than the pass took. It waits longer for the CPU."""
    tokens = 100
    token = ["addmm times=4", "spin work=200000", "multinomial", "spin work=100000"]
    with (
        started(sys.executable, "-c", NEIGHBOUR, str(CPU)),
        standin.start(loads=["libc10.so", "libtorch_cpu.so"]) as program,
    ):
        watch.attach()
        os.sched_setaffinity(program.pid, {CPU})
        os.setpriority(os.PRIO_PROCESS, program.pid, os.getpriority(os.PRIO_PROCESS, 0) + 5)
        program.process.send_signal(signal.SIGSTOP)  # until all commands are there, so that it waits for none
        for command in [GRAD_OFF, *token * tokens, GRAD_ON]:
            program.send(command)
        program.process.send_signal(signal.SIGCONT)
        program.wait()
    batch = watch.read()
    passes = sum(int(str(run.parts or 1)) for run in runs_of(batch, program))
    assert passes <= 3, "the host of a virtual machine also takes its CPU, which no kernel shows"
    waited = [difference(*snapshots_of(span)).seconds[Activity.CPU_WAIT] for span in operators_of(batch, program)]
    assert sum(waited) > 0.02, "the neighbour has taken the CPU"


@pytest.fixture
def quota() -> Iterator[Path]:
    """A control group that may use a fifth of a CPU."""
    with control_group(("cpu", "cpu.cfs_quota_us", "20000"), (".", "cpu.max", "20000 100000")) as group:
        yield group


def test_the_quota_of_the_group_stops_a_job(watch: Watch, standin: Standin, quota: Path) -> None:
    def throttled(batch: Batch) -> float:
        return sum(doubles(batch, "zernel.cgroup.cpu.throttled.time", process_pid=pid))

    with working(watch, standin, into=str(quota)) as pid:
        watch.read()
        batch = read_until(watch, lambda batch: throttled(batch) >= WATCHED_S / 4)
    assert throttled(batch) >= WATCHED_S / 4
    assert doubles(batch, "zernel.process.cpus", process_pid=pid)[-1] == pytest.approx(0.2)
    periods, stopped = (
        sum(numbers(batch, f"zernel.cgroup.cpu.{name}", process_pid=pid)) for name in ("periods", "throttled.periods")
    )
    assert 0 < stopped <= periods
