"""Processes start and end: no call is missed, no row leaks, and no process is confused with another."""

import logging
import os
import re
import subprocess
import sys
import time

import pytest

from otel_zernel.clock import SystemClock
from otel_zernel.testing import Dropped, make_context
from otel_zernel_receivers.ebpf.config import EbpfConfig
from otel_zernel_receivers.ebpf.kernel.kernel_structs import ADDRESS
from otel_zernel_receivers.ebpf.processes.scanner import Reason, Scan, Scanner
from tests.receivers.ebpf.standin import Standin
from tests.receivers.ebpf.watching import Watch, attributes_of, calls, histogram_points, numbers, watched_program

LAUNCH = "zernel.cuda.launch.latency"


def read_until_free(watch: Watch, pid: int) -> None:
    """Reads until the rows of ended processes are free."""
    watch.settle()
    assert pid not in [process.pid for process in watch.processes()]


def test_the_last_counts_of_a_process_are_read_after_its_end(watch: Watch, standin: Standin) -> None:
    with standin.start(loads=["libcudart.so.12"]) as program:
        watch.attach()
        program.do("cudaLaunchKernel times=123")
    assert calls(watch.read(), LAUNCH, process_pid=program.pid) == 123
    watch.taken()
    assert calls(watch.read(), LAUNCH, process_pid=program.pid) == 0


def test_each_child_is_a_process_from_its_first_call_on(watch: Watch, standin: Standin) -> None:
    with standin.start(loads=["libcudart.so.12"]) as program:
        watch.attach()
        program.do("cudaLaunchKernel times=10")
        program.do("cudaLaunchKernel times=7 forks=5")
        batch = watch.read()
    points = histogram_points(batch, LAUNCH)
    by_pid = {int(str(attributes_of(point)["process_pid"])): point.count for point in points}
    assert by_pid.pop(program.pid) == 10
    assert list(by_pid.values()) == [7] * 5


def test_a_process_starts_without_the_hits_of_those_that_had_its_row(loadable: None, standin: Standin) -> None:
    """The load of a new process is judged within its first second. The calibration has used the first row."""
    with watched_program(standin, EbpfConfig(max_processes=1)) as (watch, loaded, first):
        first.do("cudaLaunchKernel times=1000")
        first.kill()
        read_until_free(watch, first.pid)
        with standin.start(loads=["libcudart.so.12"]) as second:
            second.do("cudaLaunchKernel times=10")
            [(process, hits)] = loaded.tables.hits().items()
    assert process.pid == second.pid
    assert 10 <= hits.all <= 20, "each may have a hit of the driver"


def test_a_thousand_short_lived_processes_leak_nothing(loadable: None, standin: Standin) -> None:
    context = make_context(clock=SystemClock())
    counted = 0
    with Watch(EbpfConfig(max_processes=300, max_series=300), context) as watch:
        with standin.start(loads=["libcudart.so.12"]) as program:
            watch.attach()
            for _ in range(10):
                program.do("cudaLaunchKernel times=3 forks=100")
                counted += calls(watch.read(), LAUNCH)
                watch.taken()
        read_until_free(watch, program.pid)
    assert counted == 3000
    assert isinstance(context.drop, Dropped)
    assert not context.drop.counts, "rows and slots were reused"


def test_a_killed_process_gives_everything_back(loadable: None, standin: Standin) -> None:
    with watched_program(standin, EbpfConfig()) as (watch, loaded, program):
        program.do("cudaMalloc size=100 times=50")
        program.do("cudaLaunchKernel work=60000000000")
        program.send("cudaDeviceSynchronize")
        while not len(program.calls("cudaDeviceSynchronize")):
            time.sleep(0.001)
        (process,) = [process for process in watch.processes() if process.pid == program.pid]
        program.kill()
        batch = watch.read()
        assert calls(batch, LAUNCH, process_pid=program.pid) == 1
        assert calls(batch, "zernel.cuda.sync.wait", process_pid=program.pid) == 0, "the call never returned"
        read_until_free(watch, program.pid)
        assert numbers(watch.read(), "zernel.cuda.memory.used", process_pid=program.pid) == []
        assert process.row not in loaded.bpf.maps["allocations"].keys(ADDRESS)["row"]


def test_a_process_that_executes_another_program_starts_from_zero(watch: Watch, standin: Standin) -> None:
    launch = "import ctypes, sys; l = ctypes.CDLL(sys.argv[1]); [l.cudaDeviceSynchronize() for _ in range(%d)]"
    again = f"import os; os.execv(sys.executable, [sys.executable, '-c', {launch % 4!r}, sys.argv[1]])"
    with standin.start(loads=["libcudart.so.12"]):
        watch.attach()
        subprocess.run(
            [sys.executable, "-c", f"{launch % 3}; {again}", str(standin.cudart)],
            check=True,
            env={**os.environ, "LD_LIBRARY_PATH": str(standin.folder)},
        )
        points = histogram_points(watch.read(), "zernel.cuda.sync.wait")
    assert sorted(point.count for point in points) == [3, 4]


@pytest.mark.parametrize(
    ("limits", "reason"), [({"max_processes": 2}, "no_process_row"), ({"max_series": 2}, "no_series_slot")]
)
def test_calls_without_room_are_counted_as_lost(
    loadable: None, standin: Standin, limits: dict[str, int], reason: str
) -> None:
    context = make_context(clock=SystemClock())
    config = EbpfConfig.model_validate(limits)
    with Watch(config, context) as watch, standin.start(loads=["libcudart.so.12"]) as program:
        watch.attach()
        program.do("cudaLaunchKernel times=10 forks=6")
        counted = calls(watch.read(), LAUNCH)
    assert isinstance(context.drop, Dropped)
    extra = counted + context.drop.counts[reason] - 60
    assert 0 <= extra <= 6, "a child may also sleep on a futex, and that series finds no room either"
    assert context.drop.counts[reason] > 0


def test_skipped_processes_are_reported_and_an_increase_is_logged(
    loadable: None, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO, "otel_zernel")
    counts = iter((3, 2, 3, 5))

    class Fluctuating(Scanner):
        def scan(self) -> Scan:
            return Scan((), {Reason.PERMISSION: next(counts)})

    monkeypatch.setattr("otel_zernel_receivers.ebpf.scanning.Scanner", Fluctuating)
    reported = []
    with Watch() as watch:
        for _ in range(4):
            watch.attach()
            reported += numbers(watch.read(), "zernel.ebpf.left_out", error_type="permission")
            watch.taken()
    assert re.findall(r"Cannot inspect (\d+)", caplog.text) == ["3", "5"]
    assert reported == [3, 2, 3, 5]
