"""The stand-ins behave as the tests of the receiver assume."""

import platform
import signal
import time
from pathlib import Path

import numpy as np
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
            found = elf.find(names)
            assert sorted(found) == sorted(names)
            for (symbol,) in found.values():
                point = elf.probe_point(symbol, (6, 18))
                assert (point.offset - symbol.offset, point.cost) == (skipped, cost), symbol.name


def test_versions_are_those_of_the_real_libraries(standin: Standin) -> None:
    with open_elf(standin.cudart) as cudart, open_elf(standin.cuda) as cuda, open_elf(standin.nccl) as nccl:
        assert cudart.find(["cudaMalloc"])["cudaMalloc"][0].version == "libcudart.so.12"
        assert cuda.find(["cuMemAlloc_v2"])["cuMemAlloc_v2"][0].version is None
        assert nccl.find(["ncclAllReduce"])["ncclAllReduce"][0].version is None


def test_nccl_exports_each_call_twice_and_hides_its_runtime(standin: Standin) -> None:
    with open_elf(standin.nccl) as nccl:
        found = nccl.find(["ncclSend", "pncclSend", "cudaLaunchKernel"])
    assert sorted(found) == ["ncclSend", "pncclSend"]
    assert found["ncclSend"][0].address == found["pncclSend"][0].address


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


def test_every_call_of_every_thread_and_fork_is_logged(standin: Standin) -> None:
    program = standin.run(
        "load libcudart.so.12; cudaLaunchKernel times=500 threads=8; cudaLaunchKernel times=5 forks=3 threads=2"
    )
    launches = program.log
    assert launches.size == 500 * 8 + 5 * 3 * 2
    own = launches[launches["pid"] == program.pid]
    assert sorted(np.unique(own["tid"], return_counts=True)[1]) == [500] * 8
    assert np.unique(launches["pid"]).size == 1 + 3
    assert (launches["start"] > 0).all()
    assert (launches["end"] >= launches["start"]).all()


def test_a_fork_has_a_working_device(standin: Standin) -> None:
    program = standin.run(
        "load libcudart.so.12; cudaLaunchKernel work=1000000000; cudaDeviceSynchronize forks=1; cudaMemcpy forks=1"
    )
    assert list(program.log["result"]) == [0, 0, 0]


def test_memory_is_counted_and_can_run_out(standin: Standin) -> None:
    program = standin.run(
        """
        load libcudart.so.12
        cudaMalloc size=4096 times=2
        cudaMalloc size=0x1900000000
        cudaSetDevice device=1
        cudaMallocManaged size=512
        cudaFree times=4
        cudaSetDevice device=7
        """
    )
    allocations, frees = program.calls("cudaMalloc", "cudaMallocManaged"), program.calls("cudaFree")
    assert list(allocations["result"]) == [0, 0, 2, 0]
    assert list(allocations["device"]) == [0, 0, 0, 1]
    assert list(frees["size"]) == [512, 4096, 4096, 0]
    assert list(frees["pointer"][:3]) == [allocations["pointer"][i] for i in (3, 1, 0)]
    assert list(frees["result"]) == [0, 0, 0, 1]
    assert program.calls("cudaSetDevice")["result"][1] == 101


@pytest.mark.parametrize(
    ("allocate", "free"),
    [
        ("cudaMallocAsync", "cudaFreeAsync"),
        ("cuMemAlloc_v2", "cuMemFree_v2"),
        ("cuMemAllocAsync", "cuMemFreeAsync"),
        ("cuMemCreate", "cuMemRelease"),
    ],
)
def test_each_kind_of_allocation_has_its_own_free(standin: Standin, allocate: str, free: str) -> None:
    program = standin.run(f"load libcudart.so.12; load libcuda.so.1; {allocate} size=64; {free} times=2")
    assert list(program.log["result"]) == [0, 0, 1]
    assert list(program.log["size"]) == [64, 64, 0]


@pytest.mark.parametrize("function", RUNTIME + DRIVER + NCCL)
def test_every_function_can_be_called(standin: Standin, function: str) -> None:
    program = standin.run(
        f"load libcudart.so.12; load libcuda.so.1; load libnccl.so.2; ncclCommInitRank comm=1; {function} comm=1"
    )
    assert program.log[-1]["name"] == function.encode()
    assert program.log[-1]["end"]


def test_launches_fail_on_request(standin: Standin) -> None:
    program = standin.run("load libcudart.so.12; load libcuda.so.1; cudaLaunchKernel null=1; cuLaunchKernel null=1")
    assert list(program.log["result"]) == [98, 400]


def test_a_group_launches_at_its_outermost_end(standin: Standin) -> None:
    program = standin.run(
        """
        load libcudart.so.12
        load libnccl.so.2
        ncclCommInitRank comm=1 ranks=8 rank=3
        ncclGroupStart times=2
        ncclAllReduce comm=1 count=20000000 type=1 times=2
        ncclGroupEnd
        cudaStreamSynchronize
        ncclGroupEnd
        cudaStreamSynchronize
        ncclGroupEnd
        ncclAllReduce comm=1 null=1
        """
    )
    inside, after = program.calls("cudaStreamSynchronize")
    (inner, outer, _) = program.calls("ncclGroupEnd")
    assert inner["end"] <= inside["start"] <= inside["end"] <= outer["start"]
    assert after["end"] - outer["start"] >= 40 * MILLISECOND
    assert list(program.calls("ncclGroupEnd")["result"]) == [0, 0, 5]
    assert list(program.calls("ncclAllReduce")["size"]) == [20_000_000, 20_000_000, 0]
    assert program.calls("ncclAllReduce")["result"][-1] == 4


def test_the_runtime_can_be_linked_into_the_executable(standin: Standin) -> None:
    with open_elf(standin.static_program) as elf:
        assert elf.find(["cudaLaunchKernel"])
    program = standin.run("cudaLaunchKernel times=3; cudaDeviceSynchronize", program=standin.static_program)
    assert program.log.size == 4
    assert not program.log["result"].any()


def test_libraries_are_not_mapped_before_they_are_loaded(standin: Standin) -> None:
    with standin.start() as program:
        maps = Path(f"/proc/{program.pid}/maps")
        assert "libcudart" not in maps.read_text()
        program.do("load libcudart.so.12")
        assert str(standin.cudart) in maps.read_text()
        assert "libcuda.so.1" not in maps.read_text()
        program.do("cudaLaunchKernel")
        assert str(standin.cuda) in maps.read_text()


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
