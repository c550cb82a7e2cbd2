"""Only processes that are wanted are told of."""

import os
import shutil
import subprocess
import time
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any

import pytest

from otel_zernel.clock import SystemClock
from otel_zernel.testing import make_context
from otel_zernel_receivers.ebpf.config import EbpfConfig
from otel_zernel_receivers.ebpf.probes.attach_modes import AttachPoint, attach
from otel_zernel_receivers.ebpf.probes.calls import Operation
from otel_zernel_receivers.ebpf.probes.catalogue import Probe
from otel_zernel_receivers.ebpf.probes.loading import load
from otel_zernel_receivers.ebpf.processes.identities import Identities
from otel_zernel_receivers.ebpf.processes.scanner import Scan, Selection
from otel_zernel_receivers.ebpf.tables.tables import Limits
from tests.receivers.ebpf.files import open_elf
from tests.receivers.ebpf.processes.fake_proc import FakeProc
from tests.receivers.ebpf.standin import Program, Standin
from tests.receivers.ebpf.watching import Watch, calls, numbers, spans_of

LAUNCH = "zernel.cuda.launch.latency"


@contextmanager
def watching(processes: dict[str, Any]) -> Iterator[Watch]:
    watch = Watch(
        EbpfConfig.model_validate({"processes": processes, "long_wait": "0s"}), make_context(clock=SystemClock())
    )
    try:
        yield watch
    finally:
        watch.close()


@pytest.mark.parametrize(
    ("processes", "wanted"),
    [
        ({"names": ["prog*"]}, True),
        ({"names": ["python*"]}, False),
        ({"environment": {"JOB": "train-*"}}, True),
        ({"environment": {"JOB": "serve-*"}}, False),
        ({"names": ["program"], "environment": {"OTHER": "*"}}, False),
        ({"cgroups": ["*"]}, True),
        ({"cgroups": ["*no-such-pod*"]}, False),
    ],
)
def test_what_is_told_is_what_the_selection_takes(
    loadable: None, standin: Standin, processes: dict[str, Any], wanted: bool
) -> None:
    with (
        watching({"names": ["program"]}) as other,
        watching(processes) as watch,
        standin.start(environment={"JOB": "train-7"}) as program,
    ):
        program.do("load libcudart.so.12")
        other.attach()
        watch.attach()
        program.do("cudaLaunchKernel times=10")
        program.do("cudaMalloc size=100")
        program.do("cudaDeviceSynchronize")
        batch, told = watch.read(), other.read()
    assert calls(told, LAUNCH, process_pid=program.pid) == 10
    assert calls(batch, LAUNCH, process_pid=program.pid) == (10 if wanted else 0)
    assert bool(numbers(batch, "zernel.gpu.memory.used", process_pid=program.pid)) == wanted
    assert bool(spans_of(batch, program.pid)) == wanted


@contextmanager
def one_of_two_wanted(standin: Standin, library: str) -> Iterator[tuple[Watch, Program, Program]]:
    """A watch of jobs of some environment, one that is of it, and one that is not and uses the same library."""
    with (
        watching({"environment": {"JOB": "train"}}) as watch,
        standin.start(environment={"JOB": "train"}) as wanted,
        standin.start(environment={"JOB": "serve"}) as unwanted,
    ):
        for program in (wanted, unwanted):
            program.do(f"load {library}")
        watch.attach()
        yield watch, wanted, unwanted


def test_who_shares_a_library_with_a_wanted_process_is_left_out(loadable: None, standin: Standin) -> None:
    with one_of_two_wanted(standin, "libcudart.so.12") as (watch, wanted, unwanted):
        for times in (10, 20):
            for program in (wanted, unwanted):
                program.do(f"cudaLaunchKernel times={times}")
            batch = watch.read()
            watch.taken()
            assert calls(batch, LAUNCH, process_pid=wanted.pid) == times
            assert calls(batch, LAUNCH, process_pid=unwanted.pid) == 0


def test_an_unwanted_process_stays_so_when_it_makes_a_communicator(loadable: None, standin: Standin) -> None:
    with one_of_two_wanted(standin, "libnccl.so.2") as (watch, wanted, unwanted):
        for program in (wanted, unwanted):
            program.do("ncclCommInitRank comm=1 ranks=8 rank=3")
            program.do("ncclAllReduce comm=1 count=10")
        batch = watch.read()
    assert spans_of(batch, wanted.pid)
    assert not spans_of(batch, unwanted.pid)


VERSION_1 = f"name=zernel-test-{os.getpid()}"
"""A hierarchy of control groups without a controller, which stays out of the way of the machine's own."""


@pytest.fixture(params=[("cgroup", f"none,{VERSION_1}"), ("cgroup2", "rw")], ids=["version 1", "version 2"])
def cgroup(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Path]:
    """A control group of its own."""
    kind, options = request.param
    root = tmp_path / "hierarchy"
    root.mkdir()
    mount = "mount", "-t", kind, "-o", options, "none", str(root)
    if refused := run(*mount):
        pytest.skip(f"no {kind} can be mounted here: {refused}")
    folder = root / f"zernel-test-{os.getpid()}"
    folder.mkdir()
    yield folder
    folder.rmdir()
    run("umount", str(root))
    while is_there(VERSION_1):  # its last group was not gone when it was unmounted
        run(*mount)
        run("umount", str(root))


def is_there(hierarchy: str) -> bool:
    """Whether the kernel still has the hierarchy a second after it was unmounted; mostly it is gone in 0.2 s."""
    end = time.monotonic() + 1
    while hierarchy in Path("/proc/self/cgroup").read_text():
        if time.monotonic() > end:
            return True
        time.sleep(0.05)
    return False


def run(*command: str) -> str:
    """What a command says on stderr."""
    return subprocess.run(command, check=False, capture_output=True, text=True).stderr


def test_of_two_pods_one_can_be_chosen(loadable: None, standin: Standin, cgroup: Path) -> None:
    into_group = ["sh", "-c", f'echo $$ > {cgroup}/cgroup.procs && exec "$@"', "-"]
    with (
        watching({"cgroups": [f"*/{cgroup.name}"]}) as watch,
        standin.start(wrapper=into_group) as inside,
        standin.start() as outside,
    ):
        for program in (inside, outside):
            program.do("load libcudart.so.12")
        watch.attach()
        for program in (inside, outside):
            program.do("cudaLaunchKernel times=10")
        batch = watch.read()
    assert calls(batch, LAUNCH, process_pid=inside.pid) == 10
    assert calls(batch, LAUNCH, process_pid=outside.pid) == 0


def test_an_unwanted_process_whose_end_nobody_told_of_gives_its_place_back(
    loadable: None, standin: Standin, tmp_path: Path
) -> None:
    proc = FakeProc(tmp_path)
    with closing(load(Limits())) as loaded, standin.start() as program:
        rows = loaded.tables.rows
        identities = Identities(rows, Selection(names=("no-such-program",)), proc.root)
        place = AttachPoint(Probe("cudaLaunchKernel", Operation.RUNTIME_LAUNCH), offset_of(standin.cudart))
        with closing(attach(loaded.bpf, loaded.mode, str(standin.cudart), [place])):
            program.do("load libcudart.so.12")
            program.do("cudaLaunchKernel")
        proc.add(program.pid)
        identities.learn()
        assert (rows.live(), [process.pid for process in rows.held()]) == ([], [program.pid])
        shutil.rmtree(proc.root / str(program.pid))
        identities.note_scan(Scan((), {}))
        assert len(rows.ended()) == 1


def test_a_process_that_could_not_be_looked_at_is_looked_at_again(
    loadable: None, standin: Standin, tmp_path: Path
) -> None:
    proc = FakeProc(tmp_path)
    with closing(load(Limits())) as loaded, standin.start() as program:
        rows = loaded.tables.rows
        identities = Identities(rows, Selection(environment={"JOB": "train"}), proc.root)
        place = AttachPoint(Probe("cudaLaunchKernel", Operation.RUNTIME_LAUNCH), offset_of(standin.cudart))
        with closing(attach(loaded.bpf, loaded.mode, str(standin.cudart), [place])):
            program.do("load libcudart.so.12")
            program.do("cudaLaunchKernel")
        (process,) = rows.live()
        identities.learn()
        assert not identities.is_selected(process)
        proc.add(program.pid, environment={"JOB": "train"})
        identities.learn()
        assert identities.is_selected(process)


def offset_of(library: Path) -> int:
    with open_elf(library) as elf:
        (launch,) = elf.find(["cudaLaunchKernel"])["cudaLaunchKernel"]
        return elf.probe_point(launch, (6, 18)).offset
