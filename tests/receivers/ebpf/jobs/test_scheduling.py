"""The time that threads spend off the CPU."""

import os
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from otel_zernel.batch import Batch
from otel_zernel_receivers.ebpf.probes.attach_modes import Mode
from otel_zernel_receivers.ebpf.probes.loading import LoadedProbes, load, load_variant
from otel_zernel_receivers.ebpf.tables.tables import Limits
from tests.receivers.ebpf.standin import Program, Standin
from tests.receivers.ebpf.talking import talking
from tests.receivers.ebpf.watching import Watch, doubles, histogram_points, numbers, require_ebpf

WAIT_NS = 200_000_000


@pytest.fixture(scope="module", params=[False, True], ids=["state as an argument", "state in the task"])
def shared_watch(request: pytest.FixtureRequest) -> Iterator[Watch]:
    """A session with the scheduler program for this kernel, and one with the program for kernels before 5.18."""
    require_ebpf()
    loader = _load_old if request.param else load
    with Watch(loader=loader) as watch:
        yield watch


def _load_old(limits: Limits) -> LoadedProbes:
    mode = require_ebpf()
    return load_variant(limits, Mode.PERF if mode is Mode.PERF else Mode.MULTI, "classic", [["sched_switch"]])


def waited(watch: Watch, standin: Standin) -> tuple[Batch, Program]:
    with standin.start(loads=["libcudart.so.12"]) as program:
        watch.attach()
        program.do("cudaLaunchKernel")
        watch.read()
        watch.taken()
        program.send(f"cudaLaunchKernel work={WAIT_NS}")  # not waited for, so that the next call waits for all of it
        program.do("cudaDeviceSynchronize")
        return watch.read(), program


def test_a_sleep_on_a_futex_is_a_distributed_sync_wait(watch: Watch, standin: Standin) -> None:
    batch, program = waited(watch, standin)
    (point,) = histogram_points(batch, "zernel.distributed.sync.wait", process_pid=program.pid)
    (sync,) = histogram_points(batch, "zernel.cuda.sync.wait", process_pid=program.pid)
    assert WAIT_NS / 2e9 < point.sum <= sync.sum


def test_time_off_the_cpu_and_cpu_bursts_are_emitted(watch: Watch, standin: Standin) -> None:
    batch, program = waited(watch, standin)
    (off_cpu,) = doubles(batch, "zernel.process.off_cpu", process_pid=program.pid)
    (io_wait,) = doubles(batch, "zernel.process.io.wait", process_pid=program.pid)
    (burst,) = doubles(batch, "zernel.process.cpu.burst", process_pid=program.pid)
    assert off_cpu > WAIT_NS / 2e9
    assert 0 <= io_wait <= off_cpu
    assert burst > 0


SPAWN = """
import ctypes, os, sys
cudart = ctypes.CDLL(sys.argv[1])
print("ready", flush=True)
sys.stdin.readline()
cudart.cudaDeviceSynchronize()
os.posix_spawn("/bin/true", ["true"], {}, file_actions=[(os.POSIX_SPAWN_OPEN, 3, sys.argv[2], os.O_RDONLY, 0)])
os.write(1, b"done\\n")
sys.stdin.readline()
"""


def test_uninterruptible_sleep_is_waiting_for_io(watch: Watch, standin: Standin, tmp_path: Path) -> None:
    """A slow disk cannot be simulated. A parent sleeps uninterruptibly too, until its child has opened a FIFO."""
    fifo = tmp_path / "fifo"
    os.mkfifo(fifo)
    with talking(sys.executable, "-c", SPAWN, standin.cudart, fifo) as program:
        watch.attach()
        program.say()
        state = Path(f"/proc/{program.pid}/stat")
        while state.read_bytes().split()[2] != b"D":
            os.sched_yield()
        began = time.monotonic()
        while time.monotonic() < began + WAIT_NS / 1e9:
            os.sched_yield()
        fifo.write_bytes(b"")
        assert program.line() == "done"
        batch = watch.read()
    (io_wait,) = doubles(batch, "zernel.process.io.wait", process_pid=program.pid)
    (off_cpu,) = doubles(batch, "zernel.process.off_cpu", process_pid=program.pid)
    assert (
        WAIT_NS / 2e9 < io_wait <= off_cpu
    )  # its state is D before it leaves the CPU, which takes long on a busy machine


def test_reads_of_more_than_a_page_are_counted(watch: Watch, standin: Standin) -> None:
    with standin.start(loads=["libcudart.so.12"]) as program:
        watch.attach()
        program.do("cudaLaunchKernel")
        program.do("read size=65536 times=5")
        program.do("read size=4096 times=50")
        batch = watch.read()
    assert numbers(batch, "zernel.process.read.count", process_pid=program.pid) == [10]
    assert numbers(batch, "zernel.process.read.size", process_pid=program.pid) == [10 * 65536]
