"""The stand-ins behave as the tests of the receiver assume."""

import platform
import signal
import time
from pathlib import Path

import pytest

from otel_zernel_receivers.ebpf.binaries.prologue import TrapCost
from tests.receivers.ebpf.files import open_elf
from tests.receivers.ebpf.standin import Prologue, Standin
from tests.receivers.ebpf.standin.fixture import BuildStandin

RUNTIME = [
    *("cudaLaunchKernel", "cudaLaunchKernel_ptsz", "cudaLaunchKernelExC", "cudaLaunchCooperativeKernel"),
    *("cudaGraphLaunch", "cudaStreamSynchronize", "cudaDeviceSynchronize", "cudaEventSynchronize", "cudaSetDevice"),
    *(
        "cudaMemcpy",
        "cudaMemcpyAsync",
        "cudaMalloc",
        "cudaMallocAsync",
        "cudaMallocManaged",
        "cudaFree",
        "cudaFreeAsync",
    ),
]
DRIVER = [
    *("cuLaunchKernel", "cuLaunchKernelEx", "cuGraphLaunch", "cuStreamSynchronize", "cuCtxSynchronize"),
    *("cuMemAlloc_v2", "cuMemFree_v2", "cuMemAllocAsync", "cuMemCreate", "cuMemRelease", "cuMemcpyHtoDAsync_v2"),
]
NCCL = [
    *("ncclAllReduce", "ncclReduceScatter", "ncclAllGather", "ncclBroadcast", "ncclReduce", "ncclSend", "ncclRecv"),
    *("ncclCommInitRank", "ncclCommInitRankConfig", "ncclCommSplit", "ncclCommDestroy", "ncclCommAbort"),
    *("ncclGroupStart", "ncclGroupEnd"),
]
MILLISECOND = 1_000_000


on_x86_64 = pytest.mark.skipif(platform.machine() != "x86_64", reason="every function is stepped there")


@on_x86_64
@pytest.mark.parametrize(
    ("prologue", "skipped", "cost"),
    [("push", 0, TrapCost.EMULATED), ("endbr64", 4, TrapCost.EMULATED), ("stepped", 0, TrapCost.STEPPED)],
)
def test_every_function_begins_with_the_requested_prologue(
    build_standin: BuildStandin, prologue: Prologue, skipped: int, cost: TrapCost
) -> None:
    standin = build_standin(prologue)
    for path, names in ((standin.cudart, RUNTIME), (standin.cuda, DRIVER), (standin.nccl, NCCL)):
        with open_elf(path) as elf:
            find = elf.find(names)
            assert sorted(find) == sorted(names)
            for (symbol,) in find.values():
                point = elf.probe_point(symbol, (6, 18))
                assert (point.offset - symbol.offset, point.cost) == (skipped, cost), symbol.name


def test_versions_are_those_of_the_real_libraries(standin: Standin) -> None:
    with open_elf(standin.cudart) as cudart, open_elf(standin.cuda) as cuda, open_elf(standin.nccl) as nccl:
        assert cudart.find(["cudaMalloc"])["cudaMalloc"][0].version == "libcudart.so.12"
        assert cuda.find(["cuMemAlloc_v2"])["cuMemAlloc_v2"][0].version is None
        assert nccl.find(["ncclAllReduce"])["ncclAllReduce"][0].version is None


def test_nccl_exports_each_call_twice_and_hides_its_runtime(standin: Standin) -> None:
    with open_elf(standin.nccl) as nccl:
        find = nccl.find(["ncclSend", "pncclSend", "cudaLaunchKernel"])
    assert sorted(find) == ["ncclSend", "pncclSend"]
    assert find["ncclSend"][0].address == find["pncclSend"][0].address


def test_a_sync_waits_until_the_device_is_done(standin: Standin) -> None:
    program = standin.run(
        """
        load libcudart.so.12
        cudaLaunchKernel work=10000000 stream=1
        cudaEventRecord event=1 stream=1
        cudaEventQuery event=1
        cudaLaunchKernel work=10000000 stream=1
        cudaEventSynchronize event=1
        cudaStreamSynchronize stream=2
        cudaStreamSynchronize stream=1
        cudaEventQuery event=1
        """
    )
    first, second = program.calls("cudaLaunchKernel")
    (event,) = program.calls("cudaEventSynchronize")
    idle, busy = program.calls("cudaStreamSynchronize")
    assert event["end"] - first["start"] >= 10 * MILLISECOND
    assert busy["end"] - first["start"] >= 20 * MILLISECOND
    assert idle["end"] < busy["end"]
    assert second["end"] < event["end"], "a launch returns before its kernel ends"
    assert list(program.calls("cudaEventQuery")["result"]) == [600, 0]


def test_only_blocking_copies_wait(standin: Standin) -> None:
    program = standin.run("load libcudart.so.12; cudaMemcpyAsync size=160000000; cudaMemcpy size=160000000 kind=2")
    (blocking,) = program.calls("cudaMemcpy")
    (enqueued,) = program.calls("cudaMemcpyAsync")
    assert enqueued["end"] <= blocking["start"]
    assert blocking["end"] - enqueued["start"] >= 20 * MILLISECOND
    assert blocking["size"] == enqueued["size"] == 160_000_000


def test_a_call_ended_by_a_signal_is_in_the_log(standin: Standin) -> None:
    with standin.start(loads=["libcudart.so.12"]) as program:
        program.do(f"cudaLaunchKernel work={3600 * 10**9}")
        program.send("cudaStreamSynchronize")
        while program.calls("cudaStreamSynchronize").size == 0 or not program.log[-1]["start"]:
            time.sleep(0.001)
        program.kill()
    assert program.process.returncode == -signal.SIGKILL
    assert list(program.log["end"] > 0) == [True, False]


@pytest.mark.parametrize(
    ("command", "said"),
    [
        ("cudaNothing", "no such command: cudaNothing"),
        ("cudaMalloc bytes=1", "not an option: bytes"),
        ("cudaMalloc", "no loaded library has cudaMalloc"),
        ("load libnothing.so", "cannot load libnothing.so"),
    ],
)
def test_a_script_that_cannot_run_prints_the_reason(standin: Standin, command: str, said: str) -> None:
    with standin.start() as program, pytest.raises(RuntimeError, match=said):
        program.do(command)


def test_a_full_log_ends_the_program(standin: Standin) -> None:
    full = pytest.raises(RuntimeError, match="the log is full")
    with standin.start(capacity=10, loads=["libcudart.so.12"]) as program, full:
        program.do("cudaLaunchKernel times=11")


def test_a_collective_over_processes_begins_when_the_last_device_reaches_it(standin: Standin, tmp_path: Path) -> None:
    peers = {"STANDIN_PEERS": str(tmp_path / "peers")}
    with standin.start(environment=peers) as early, standin.start(environment=peers) as late:
        for rank, program in enumerate((early, late)):
            for command in (
                "load libcudart.so.12",
                "load libnccl.so.2",
                f"ncclCommInitRank comm=1 ranks=2 rank={rank}",
            ):
                program.do(command)
        early.do("ncclAllReduce comm=1 count=1000 type=1")
        early.send("cudaDeviceSynchronize")
        late.do("cudaLaunchKernel work=50000000")
        late.do("ncclAllReduce comm=1 count=1000 type=1")
        late.do("cudaDeviceSynchronize")
        early.wait()
    (waited,), (launched,) = early.calls("cudaDeviceSynchronize"), late.calls("cudaLaunchKernel")
    assert waited["end"] - launched["start"] >= 50 * MILLISECOND
