"""Files with probes: they are probed for later users, and probes are detached from unused ones."""

import os
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from threading import Event
from typing import Any

from otel_zernel.clock import SystemClock
from otel_zernel.testing import FakeClock, make_context
from otel_zernel_receivers.ebpf.budget.overhead import Group
from otel_zernel_receivers.ebpf.probed_files import KEPT, ProbedFiles
from otel_zernel_receivers.ebpf.probes.calls import Operation
from otel_zernel_receivers.ebpf.probes.libraries import AttachPoints, find_attach_points
from otel_zernel_receivers.ebpf.probes.loading import load
from otel_zernel_receivers.ebpf.probes.search import PlaceSearch
from otel_zernel_receivers.ebpf.processes.scanner import Scan, Scanner, Selection
from otel_zernel_receivers.ebpf.tables.tables import Limits
from tests.receivers.ebpf.standin import Standin
from tests.receivers.ebpf.watching import TEST_RUN


def test_a_library_is_probed_although_its_first_user_ended_before(loadable: None, standin: Standin) -> None:
    scanner = Scanner(selection=Selection(environment={TEST_RUN: os.environ[TEST_RUN]}))
    with (
        closing(load(Limits())) as loaded,
        closing(
            ProbedFiles(loaded.bpf, loaded.mode, make_context(clock=SystemClock()), PlaceSearch(at_any_cost=False))
        ) as files,
    ):
        with standin.start(loads=["libcudart.so.12"]):
            scan = scanner.scan()
        files.update(scan)
        with standin.start(loads=["libcudart.so.12"]) as second:
            files.update(scanner.scan())
            second.do("cudaLaunchKernel times=5")
            readings = loaded.tables.read()
    assert [(reading.process.pid, int(reading.counts.sum())) for reading in readings.series] == [(second.pid, 5)]


def is_asleep(pid: int) -> bool:
    return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] == "S"


def test_a_call_in_progress_while_its_probe_is_detached_hides_no_later_call(loadable: None, standin: Standin) -> None:
    scanner = Scanner(selection=Selection(environment={TEST_RUN: os.environ[TEST_RUN]}))
    with (
        closing(load(Limits())) as loaded,
        closing(
            ProbedFiles(loaded.bpf, loaded.mode, make_context(clock=SystemClock()), PlaceSearch(at_any_cost=False))
        ) as files,
        standin.start() as program,
    ):
        for library in ("libcudart.so.12", "libcuda.so.1"):
            program.do(f"load {library}")
        files.update(scanner.scan())
        program.do("cudaLaunchKernel work=1000000000")
        program.send("cudaDeviceSynchronize")
        while not (program.calls("cudaDeviceSynchronize")["start"].any() and is_asleep(program.pid)):
            time.sleep(0.01)
        files.switch_off([Group.COPY_SYNC])
        while not files.may_switch_on():
            time.sleep(0.01)
        program.wait()
        program.do("cuMemCreate size=4096")
        (memory,) = loaded.tables.read().memory
    assert memory.used == 4096


def test_probes_are_detached_from_a_file_that_is_unused_for_long(loadable: None, standin: Standin) -> None:
    scanner = Scanner(selection=Selection(environment={TEST_RUN: os.environ[TEST_RUN]}))
    clock, counted = FakeClock(), []
    with (
        closing(load(Limits())) as loaded,
        closing(
            ProbedFiles(loaded.bpf, loaded.mode, make_context(clock=clock), PlaceSearch(at_any_cost=False))
        ) as files,
        standin.start(loads=["libcudart.so.12"]) as program,
    ):
        files.update(scanner.scan())
        for seconds in (KEPT - 1, 2):
            clock.advance(seconds)
            files.update(Scan((), {}))
            while not files.may_switch_on():
                time.sleep(0.01)
            program.do("cudaLaunchKernel times=5")
            launches = [one for one in loaded.tables.read().series if one.operation == Operation.RUNTIME_LAUNCH]
            counted.append(sum(reading.counts.sum() for reading in launches))
    assert counted == [5, 0]


MAP_COPIES = """
import mmap, shutil, sys
library, folder, count = sys.argv[1:]
maps = []
for number in range(int(count)):
    copy = f"{folder}/libcudart-{number:08x}.so.12"
    shutil.copy(library, copy)
    with open(copy, "rb") as file:
        maps.append(mmap.mmap(file.fileno(), 4096, prot=mmap.PROT_READ | mmap.PROT_EXEC))
print("ready", flush=True)
sys.stdin.read()
"""


@contextmanager
def crowd(standin: Standin, folder: Path, count: int) -> Iterator[None]:
    """A process that has mapped copies of a library."""
    command = [sys.executable, "-c", MAP_COPIES, str(standin.cudart), str(folder), str(count)]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as process:
        assert process.stdout is not None
        process.stdout.readline()
        yield
        process.communicate()


def test_copies_of_a_library_without_room_leave_the_probes_of_other_jobs_on(
    loadable: None, standin: Standin, tmp_path: Path
) -> None:
    scanner = Scanner(selection=Selection(environment={TEST_RUN: os.environ[TEST_RUN]}))
    context, others = make_context(clock=SystemClock()), 20

    def update() -> None:
        files.update(scanner.scan())
        while not files.may_switch_on():
            time.sleep(0.01)

    def counted() -> int:
        program.do("cudaLaunchKernel times=5")
        launches = [one for one in loaded.tables.read().series if one.operation == Operation.RUNTIME_LAUNCH]
        return sum(int(reading.counts.sum()) for reading in launches)

    with closing(load(Limits())) as loaded, standin.start(loads=["libcudart.so.12", "libcuda.so.1"]) as program:
        with closing(ProbedFiles(loaded.bpf, loaded.mode, context, PlaceSearch(at_any_cost=False), 1 << 20)) as alone:
            alone.update(scanner.scan())
            needed = alone.descriptors
        with closing(
            ProbedFiles(loaded.bpf, loaded.mode, context, PlaceSearch(at_any_cost=False), 2 * needed)
        ) as files:
            update()
            with crowd(standin, tmp_path, others):
                for _ in range(3):
                    update()
                assert files.without_room >= others - 2
                assert files.descriptors <= 2 * needed
                files.switch_off([Group.LAUNCH])
                while not files.may_switch_on():
                    time.sleep(0.01)
                assert files.switch_on([Group.LAUNCH]) == {Group.LAUNCH}
                assert counted() == 5
            (tmp_path / "later").mkdir()
            with crowd(standin, tmp_path / "later", 1):
                update()  # takes the probes off a copy that no process uses any more
                update()
                assert files.without_room == 0


def test_a_file_that_takes_long_to_search_delays_no_other(loadable: None, standin: Standin, tmp_path: Path) -> None:
    scanner = Scanner(selection=Selection(environment={TEST_RUN: os.environ[TEST_RUN]}))
    go_on = Event()

    def find(fd: int, *arguments: Any, **options: Any) -> AttachPoints:
        if "libcudart-" in str(Path(f"/proc/self/fd/{fd}").readlink()):
            assert go_on.wait(60)
        return find_attach_points(fd, *arguments, **options)

    context = make_context(clock=SystemClock())
    with (
        closing(load(Limits())) as loaded,
        closing(ProbedFiles(loaded.bpf, loaded.mode, context, PlaceSearch(at_any_cost=False, find=find))) as files,
        standin.start(loads=["libcudart.so.12"]) as program,
    ):
        files.update(scanner.scan())
        with crowd(standin, tmp_path, 2):
            files.update(scanner.scan())
            program.do("cudaLaunchKernel times=5")
            launches = [one for one in loaded.tables.read().series if one.operation == Operation.RUNTIME_LAUNCH]
            assert sum(int(reading.counts.sum()) for reading in launches) == 5
            alone = files.descriptors
            go_on.set()
            files.update(scanner.scan())
            assert files.descriptors > alone
