"""Only selected processes are reported."""

import os
import shutil
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import ExitStack, closing, contextmanager
from pathlib import Path
from typing import Any

import pytest

from otel_zernel.clock import SystemClock
from otel_zernel.testing import Dropped, make_context
from otel_zernel_receivers.ebpf.config import EbpfConfig
from otel_zernel_receivers.ebpf.probes.attach_modes import AttachPoint, attach
from otel_zernel_receivers.ebpf.probes.calls import Operation
from otel_zernel_receivers.ebpf.probes.catalogue import Probe
from otel_zernel_receivers.ebpf.probes.loading import load
from otel_zernel_receivers.ebpf.processes.identities import Identities
from otel_zernel_receivers.ebpf.processes.scanner import Scan, Selection
from otel_zernel_receivers.ebpf.tables.process_table import ProcessRows, WorkerTable
from otel_zernel_receivers.ebpf.tables.tables import Limits
from tests.receivers.ebpf.files import open_elf
from tests.receivers.ebpf.processes.fake_proc import FakeProc
from tests.receivers.ebpf.standin import Standin
from tests.receivers.ebpf.talking import talking
from tests.receivers.ebpf.watching import Watch, attributes_of, calls, endings_of, numbers, spans_of

LAUNCH = "zernel.cuda.launch.latency"


def watching(processes: dict[str, Any]) -> Watch:
    return Watch(EbpfConfig.model_validate({"processes": processes, "long_wait": "0s"}))


def test_of_two_processes_with_the_same_libraries_only_the_selected_one_is_reported(
    loadable: None, standin: Standin
) -> None:
    """A communicator names a rank, as the environment does, but selects no process."""
    libraries = ["libcudart.so.12", "libnccl.so.2"]
    with (
        watching({"names": ["prog*"], "environment": {"JOB": "train-*"}, "cgroups": ["*"]}) as watch,
        standin.start(environment={"JOB": "train-7"}, loads=libraries) as selected,
        standin.start(environment={"JOB": "serve-7"}, loads=libraries) as unselected,
    ):
        watch.attach()
        for program in (selected, unselected):
            program.do("cudaMalloc size=100")
            program.do("ncclCommInitRank comm=1 ranks=8 rank=3")
            program.do("ncclAllReduce comm=1 count=10")
        for times in (10, 20):
            for program in (selected, unselected):
                program.do(f"cudaLaunchKernel times={times}")
            watch.taken()
            batch = watch.read()
            assert calls(batch, LAUNCH, process_pid=selected.pid, zernel_cuda_api="runtime") == times
            assert calls(batch, LAUNCH, process_pid=unselected.pid) == 0
            assert numbers(batch, "zernel.cuda.memory.used", process_pid=selected.pid)
            assert not numbers(batch, "zernel.cuda.memory.used", process_pid=unselected.pid)
            assert bool(spans_of(batch, selected.pid)) == (times == 10)
            assert not spans_of(batch, unselected.pid)


VERSION_1 = f"name=zernel-test-{os.getpid()}"
"""A hierarchy of control groups without a controller, which does not conflict with the machine's own."""


@pytest.fixture(params=[("cgroup", f"none,{VERSION_1}"), ("cgroup2", "rw")], ids=["version 1", "version 2"])
def cgroup(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Path]:
    """A new control group."""
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
    while is_there(VERSION_1):  # its last group still existed when it was unmounted
        run(*mount)
        run("umount", str(root))


def is_there(hierarchy: str) -> bool:
    """Whether the kernel still has the hierarchy one second after unmounting. It usually disappears within 0.2 s."""
    end = time.monotonic() + 1
    while hierarchy in Path("/proc/self/cgroup").read_text():
        if time.monotonic() > end:
            return True
        time.sleep(0.05)
    return False


def run(*command: str) -> str:
    """The stderr of a command."""
    return subprocess.run(command, check=False, capture_output=True, text=True).stderr


def test_one_of_two_pods_can_be_selected(loadable: None, standin: Standin, cgroup: Path) -> None:
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


@contextmanager
def launched(standin: Standin) -> Iterator[tuple[int, ProcessRows, WorkerTable]]:
    """The pid of a program with a row in the kernel that nothing was learned of, and the tables of such programs."""
    with open_elf(standin.cudart) as elf:
        (launch,) = elf.find(["cudaLaunchKernel"])["cudaLaunchKernel"]
        place = AttachPoint(
            Probe("cudaLaunchKernel", Operation.RUNTIME_LAUNCH), elf.probe_point(launch, (6, 18)).offset
        )
    with closing(load(Limits())) as loaded, standin.start() as program:
        with closing(attach(loaded.bpf, loaded.mode, str(standin.cudart), [place])):
            program.do("load libcudart.so.12")
            program.do("cudaLaunchKernel")
        yield program.pid, loaded.tables.rows, loaded.tables.workers


def test_a_process_that_could_not_be_read_is_read_again_and_its_row_is_freed_even_if_its_end_was_missed(
    loadable: None, standin: Standin, tmp_path: Path
) -> None:
    proc = FakeProc(tmp_path)
    with launched(standin) as (pid, rows, workers):
        selecting = Identities(rows, workers, Selection(environment={"JOB": "train"}), proc.root)
        (process,) = rows.live()
        selecting.learn()
        assert not selecting.is_selected(process)
        proc.add(pid, environment={"JOB": "train"})
        selecting.learn()
        assert selecting.is_selected(process)
        ignoring = Identities(rows, workers, Selection(names=("no-such-program",)), proc.root)
        ignoring.learn()
        assert (rows.live(), [process.pid for process in rows.held()]) == ([], [pid])
        shutil.rmtree(proc.root / str(pid))
        ignoring.note_scan(Scan((), {}))
        assert len(rows.ended()) == 1


def test_a_fork_that_ends_before_the_next_reading_is_selected_as_its_parent(loadable: None, standin: Standin) -> None:
    with watching({"environment": {"JOB": "train"}}) as watch, ExitStack() as stack:
        programs = [
            stack.enter_context(standin.start(environment={"JOB": job, "RANK": "3"}, loads=["libcudart.so.12"]))
            for job in ("train", "serve")
        ]
        watch.attach()
        for program in programs:
            program.do("cudaLaunchKernel times=100 forks=3")
        batch = watch.read()
        selected, unselected = (set(program.calls("cudaLaunchKernel")["pid"].tolist()) for program in programs)
    assert [calls(batch, LAUNCH, process_pid=pid) for pid in selected] == [100] * 3
    assert [calls(batch, LAUNCH, process_pid=pid) for pid in unselected] == [0] * 3
    assert len([span for pid in selected for span in endings_of(batch, pid)]) == 3
    assert not [span for pid in unselected for span in endings_of(batch, pid)]
    resources = [attributes_of(resource.resource) for resource in batch.metrics.resource_metrics]
    ranks = {resource.get("process_pid"): resource.get("zernel_rank") for resource in resources}
    assert {pid: ranks.get(pid) for pid in selected} == dict.fromkeys(selected, 3)
    assert not ranks.keys() & unselected


_FORKS = """
import ctypes, os, sys
launch = ctypes.CDLL(sys.argv[1]).cudaLaunchKernel
print("ready", flush=True)
sys.stdin.readline()
if os.fork():
    os._exit(0)
sys.stdin.readline()
child = os.fork()
if not child:
    for _ in range(100):
        launch(None, *[ctypes.c_void_p()] * 7)
    os._exit(0)
os.waitpid(child, 0)
print(child, flush=True)
"""
"""A process that ends, and leaves a fork. The fork forks a process that launches kernels."""


def test_forks_are_selected_as_a_process_that_ended_before_they_began(loadable: None, standin: Standin) -> None:
    with (
        watching({"environment": {"JOB": "train"}}) as watch,
        talking(sys.executable, "-c", _FORKS, standin.cudart, environment={"JOB": "train"}) as program,
    ):
        watch.attach()
        program.say("fork")
        program.process.wait()
        for _ in range(3):
            watch.attach()
            watch.read()
        child = int(program.ask("launch"))
        assert calls(watch.read(), LAUNCH, process_pid=child) == 100


def test_calls_of_a_process_that_could_not_be_identified_are_counted_as_lost(loadable: None, standin: Standin) -> None:
    """It has executed its own program, so nothing is known about it after its end."""
    context = make_context(clock=SystemClock())
    config = EbpfConfig.model_validate({"processes": {"environment": {"JOB": "train"}}})
    with (
        Watch(config, context) as watch,
        standin.start(environment={"JOB": "train"}, loads=["libcudart.so.12"]),
    ):
        watch.attach()
        with standin.start(environment={"JOB": "train"}, loads=["libcudart.so.12"]) as short:
            short.do("cudaLaunchKernel times=100")
        watch.read()
        assert calls(watch.read(), LAUNCH, process_pid=short.pid) == 0
    assert isinstance(context.drop, Dropped)
    assert context.drop.counts == {"unknown_process": 100}
