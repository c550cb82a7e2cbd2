"""Files with probes: they are probed for later users, and probes are detached from unused ones."""

import sys
from contextlib import AbstractContextManager
from pathlib import Path
from threading import Event
from typing import Any

from otel_zernel.testing import FakeClock, make_context
from otel_zernel_receivers.ebpf.budget.overhead import Group
from otel_zernel_receivers.ebpf.probed_files import KEPT
from otel_zernel_receivers.ebpf.probes.libraries import AttachPoints, find_attach_points
from otel_zernel_receivers.ebpf.processes.scanner import Scan
from tests.receivers.ebpf.probed import Probed, probed
from tests.receivers.ebpf.standin import Program, Standin
from tests.receivers.ebpf.talking import Talker, talking
from tests.waiting import wait_for


def counted(here: Probed, program: Program) -> int:
    """The launches that are counted of five."""
    program.do("cudaLaunchKernel times=5")
    return here.launches()


def test_a_library_is_probed_although_its_first_user_ended_before(loadable: None, standin: Standin) -> None:
    with probed() as here:
        with standin.start(loads=["libcudart.so.12"]):
            scan = here.scanner.scan()
        here.files.update(scan)
        with standin.start(loads=["libcudart.so.12"]) as second:
            here.update()
            second.do("cudaLaunchKernel times=5")
            readings = here.tables.read()
    assert [(reading.process.pid, int(reading.counts.sum())) for reading in readings.series] == [(second.pid, 5)]


def is_asleep(pid: int) -> bool:
    return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] == "S"


def test_a_call_in_progress_while_its_probe_is_detached_hides_no_later_call(loadable: None, standin: Standin) -> None:
    with probed() as here, standin.start(loads=["libcudart.so.12", "libcuda.so.1"]) as program:
        here.update()
        program.do("cudaLaunchKernel work=1000000000")
        program.send("cudaDeviceSynchronize")
        wait_for(lambda: program.calls("cudaDeviceSynchronize")["start"].any() and is_asleep(program.pid))
        here.files.switch_off([Group.COPY_SYNC])
        wait_for(here.files.may_switch_on)
        program.wait()
        program.do("cuMemCreate size=4096")
        (memory,) = here.tables.read().memory
    assert memory.used == 4096


def test_probes_are_detached_from_a_file_that_is_unused_for_long(loadable: None, standin: Standin) -> None:
    clock, launches = FakeClock(), []
    with probed(make_context(clock=clock)) as here, standin.start(loads=["libcudart.so.12"]) as program:
        here.update()
        for seconds in (KEPT - 1, 2):
            clock.advance(seconds)
            here.files.update(Scan((), {}))
            wait_for(here.files.may_switch_on)
            launches.append(counted(here, program))
    assert launches == [5, 0]


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


def crowd(standin: Standin, folder: Path, count: int) -> AbstractContextManager[Talker]:
    """A process that has mapped copies of a library."""
    return talking(sys.executable, "-c", MAP_COPIES, standin.cudart, folder, str(count))


def test_copies_of_a_library_without_room_leave_the_probes_of_other_jobs_on(
    loadable: None, standin: Standin, tmp_path: Path
) -> None:
    others = 20
    with standin.start(loads=["libcudart.so.12", "libcuda.so.1"]) as program:
        with probed() as alone:
            alone.update()
            needed = alone.files.descriptors
        with probed(most=2 * needed) as here:
            here.update()
            with crowd(standin, tmp_path, others):
                for _ in range(3):
                    here.update()
                assert here.files.without_room >= others - 2
                assert here.files.descriptors <= 2 * needed
                here.files.switch_off([Group.LAUNCH])
                wait_for(here.files.may_switch_on)
                assert here.files.switch_on([Group.LAUNCH]) == {Group.LAUNCH}
                assert counted(here, program) == 5
            (tmp_path / "later").mkdir()
            with crowd(standin, tmp_path / "later", 1):
                here.update()  # takes the probes off a copy that no process uses any more
                here.update()
                assert here.files.without_room == 0


def test_a_file_that_takes_long_to_search_delays_no_other(loadable: None, standin: Standin, tmp_path: Path) -> None:
    go_on = Event()

    def find(fd: int, *arguments: Any, **options: Any) -> AttachPoints:
        if "libcudart-" in str(Path(f"/proc/self/fd/{fd}").readlink()):
            assert go_on.wait(60)
        return find_attach_points(fd, *arguments, **options)

    with probed(find=find) as here, standin.start(loads=["libcudart.so.12"]) as program:
        here.update()
        with crowd(standin, tmp_path, 2):
            here.update()
            assert counted(here, program) == 5
            alone = here.files.descriptors
            go_on.set()
            here.update()
            assert here.files.descriptors > alone
