"""Only selected processes are reported."""

import os
import shutil
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import closing, contextmanager
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
from otel_zernel_receivers.ebpf.tables.tables import Limits
from tests.receivers.ebpf.files import open_elf
from tests.receivers.ebpf.processes.fake_proc import FakeProc
from tests.receivers.ebpf.standin import Program, Standin
from tests.receivers.ebpf.watching import Watch, attributes_of, calls, endings_of, numbers, spans_of

LAUNCH = "zernel.cuda.launch.latency"


def watching(processes: dict[str, Any]) -> Watch:
    return Watch(EbpfConfig.model_validate({"processes": processes, "long_wait": "0s"}))


@pytest.mark.parametrize(
    ("processes", "is_selected"),
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
def test_only_selected_processes_are_reported(
    watch: Watch, standin: Standin, processes: dict[str, Any], is_selected: bool
) -> None:
    with (
        watching(processes) as selective,
        standin.start(environment={"JOB": "train-7"}, loads=["libcudart.so.12"]) as program,
    ):
        watch.attach()
        selective.attach()
        program.do("cudaLaunchKernel times=10")
        program.do("cudaMalloc size=100")
        program.do("cudaDeviceSynchronize")
        batch, everything = selective.read(), watch.read()
    assert calls(everything, LAUNCH, process_pid=program.pid) == 10
    assert calls(batch, LAUNCH, process_pid=program.pid) == (10 if is_selected else 0)
    assert bool(numbers(batch, "zernel.cuda.memory.used", process_pid=program.pid)) == is_selected
    assert bool(spans_of(batch, program.pid)) == is_selected


@contextmanager
def one_of_two_selected(standin: Standin, library: str) -> Iterator[tuple[Watch, Program, Program]]:
    """A watch that selects one environment, a program with it, and one without it. Both use the same library."""
    with (
        watching({"environment": {"JOB": "train"}}) as watch,
        standin.start(environment={"JOB": "train"}) as selected,
        standin.start(environment={"JOB": "serve"}) as unselected,
    ):
        for program in (selected, unselected):
            program.do(f"load {library}")
        watch.attach()
        yield watch, selected, unselected


def test_an_unselected_process_with_the_same_library_is_not_reported(loadable: None, standin: Standin) -> None:
    with one_of_two_selected(standin, "libcudart.so.12") as (watch, selected, unselected):
        for times in (10, 20):
            for program in (selected, unselected):
                program.do(f"cudaLaunchKernel times={times}")
            batch = watch.read()
            watch.taken()
            assert calls(batch, LAUNCH, process_pid=selected.pid) == times
            assert calls(batch, LAUNCH, process_pid=unselected.pid) == 0


def test_a_communicator_does_not_select_an_unselected_process(loadable: None, standin: Standin) -> None:
    with one_of_two_selected(standin, "libnccl.so.2") as (watch, selected, unselected):
        for program in (selected, unselected):
            program.do("ncclCommInitRank comm=1 ranks=8 rank=3")
            program.do("ncclAllReduce comm=1 count=10")
        batch = watch.read()
    assert spans_of(batch, selected.pid)
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


def test_the_row_of_an_unselected_process_is_freed_even_if_its_end_was_missed(
    loadable: None, standin: Standin, tmp_path: Path
) -> None:
    proc = FakeProc(tmp_path)
    with closing(load(Limits())) as loaded, standin.start() as program:
        rows, workers = loaded.tables.rows, loaded.tables.workers
        identities = Identities(rows, workers, Selection(names=("no-such-program",)), proc.root)
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


def test_a_process_that_could_not_be_read_is_read_again(loadable: None, standin: Standin, tmp_path: Path) -> None:
    proc = FakeProc(tmp_path)
    with closing(load(Limits())) as loaded, standin.start() as program:
        rows, workers = loaded.tables.rows, loaded.tables.workers
        identities = Identities(rows, workers, Selection(environment={"JOB": "train"}), proc.root)
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


@pytest.mark.parametrize("is_selected", [True, False])
def test_a_fork_that_ends_before_the_next_reading_is_selected_as_its_parent(
    loadable: None, standin: Standin, is_selected: bool
) -> None:
    with (
        watching({"environment": {"JOB": "train"}}) as watch,
        standin.start(
            environment={"JOB": "train" if is_selected else "serve", "RANK": "3"}, loads=["libcudart.so.12"]
        ) as program,
    ):
        watch.attach()
        program.do("cudaLaunchKernel times=100 forks=3")
        batch = watch.read()
        children = set(program.calls("cudaLaunchKernel")["pid"].tolist())
    assert len(children) == 3
    assert [calls(batch, LAUNCH, process_pid=pid) for pid in children] == [100 * is_selected] * 3
    ends = [span for pid in children for span in endings_of(batch, pid)]
    assert len(ends) == 3 * is_selected
    resources = [attributes_of(one.resource) for one in batch.metrics.resource_metrics]
    ranks = {one["process_pid"]: one.get("zernel_rank") for one in resources if one.get("process_pid") in children}
    assert ranks == dict.fromkeys(children, 3) if is_selected else not ranks


_FORKS = """
import ctypes, os, sys
launch = ctypes.CDLL(sys.argv[1]).cudaLaunchKernel
print(os.getpid(), flush=True)
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
        subprocess.Popen(
            [sys.executable, "-c", _FORKS, str(standin.cudart)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            bufsize=1,
            env={**os.environ, "JOB": "train"},
        ) as process,
    ):
        assert process.stdin
        assert process.stdout
        process.stdout.readline()
        watch.attach()
        process.stdin.write("fork\n")
        process.wait()
        for _ in range(3):
            watch.attach()
            watch.read()
        process.stdin.write("launch\n")
        child = int(process.stdout.readline())
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
