"""The CUDA calls of a program, compared with its own log."""

import pytest

from otel_zernel.batch import Batch
from otel_zernel_receivers.ebpf.processes.identities import plain_list
from tests.receivers.ebpf.standin import Program, Standin
from tests.receivers.ebpf.watching import Watch, attributes_of, calls, histogram_points, metrics_of, numbers

LAUNCH, SYNC = "zernel.cuda.launch.latency", "zernel.cuda.sync.wait"
COPY, COPIED = "zernel.cuda.copy.latency", "zernel.cuda.copy.size"
ERRORS = "zernel.cuda.errors"
USED, PEAK = "zernel.cuda.memory.used", "zernel.cuda.memory.peak"
ALLOCATIONS, FREES = "zernel.cuda.memory.allocations", "zernel.cuda.memory.frees"

RUNTIME = "load libcudart.so.12; load libcuda.so.1"


def watched(watch: Watch, standin: Standin, script: str, libraries: str = RUNTIME) -> tuple[Batch, Program]:
    """The receiver's reading of a script, and the program with its own log."""
    with standin.start() as program:
        for command in libraries.split("; "):
            program.do(command)
        watch.attach()
        for command in script.split("; "):
            program.send(command)  # queued commands run without a pause, so that a wait is a real wait
        program.wait()
        return watch.read(), program


@pytest.mark.parametrize(
    ("function", "api"),
    [
        ("cudaLaunchKernel", "runtime"),
        ("cudaLaunchKernel_ptsz", "runtime"),
        ("cudaLaunchKernelExC", "runtime"),
        ("cudaLaunchCooperativeKernel", "runtime"),
        ("cudaGraphLaunch", "graph"),
        ("cuLaunchKernel", "driver"),
        ("cuLaunchKernelEx", "driver"),
        ("cuGraphLaunch", "graph"),
    ],
)
def test_a_launch_counts_once_whatever_it_calls(watch: Watch, standin: Standin, function: str, api: str) -> None:
    batch, program = watched(watch, standin, f"{function} times=50 threads=2")
    assert calls(batch, LAUNCH, process_pid=program.pid, zernel_cuda_api=api) == 100
    assert calls(batch, LAUNCH) == 100


@pytest.mark.parametrize("function", ["cudaDeviceSynchronize", "cudaStreamSynchronize", "cuCtxSynchronize"])
def test_a_sync_wait_is_as_long_as_the_wait(watch: Watch, standin: Standin, function: str) -> None:
    batch, program = watched(watch, standin, f"cudaLaunchKernel work=200000000; {function}")
    (call,) = program.calls(function)
    (point,) = histogram_points(batch, SYNC, process_pid=program.pid)
    truth = (call["end"] - call["start"]) / 1e9
    assert truth / 10 < point.sum <= truth  # a busy machine pauses the program between its clock and the probe


def test_copies_are_counted_by_kind_with_their_bytes(watch: Watch, standin: Standin) -> None:
    batch, program = watched(
        watch,
        standin,
        "cudaMemcpyAsync size=1000 kind=1 times=3; cudaMemcpy size=500 kind=2 times=2; cudaMemcpy size=7 kind=3; "
        "cuMemcpyHtoDAsync_v2 size=11 times=4",
    )
    of_kind = {"host_to_device": (7, 3044), "device_to_host": (2, 1000), "device_to_device": (1, 7)}
    for kind, (count, size) in of_kind.items():
        assert calls(batch, COPY, process_pid=program.pid, zernel_cuda_copy_kind=kind) == count
        assert numbers(batch, COPIED, process_pid=program.pid, zernel_cuda_copy_kind=kind) == [size]
    assert calls(batch, SYNC, process_pid=program.pid) == 3, "blocking copies wait for the GPU"


def test_failed_copies_move_no_bytes_and_are_errors(watch: Watch, standin: Standin) -> None:
    batch, program = watched(watch, standin, "cudaMemcpy size=1000 kind=9 times=2; cudaLaunchKernel null=1 times=3")
    assert sum(numbers(batch, COPIED)) == 0
    assert numbers(batch, ERRORS, process_pid=program.pid, error_type="invalid_value") == [2]
    assert numbers(batch, ERRORS, process_pid=program.pid, error_type="invalid_device_function") == [3]


def test_memory_is_what_is_allocated_and_not_freed(watch: Watch, standin: Standin) -> None:
    batch, program = watched(
        watch,
        standin,
        "cudaSetDevice device=1; cudaMalloc size=4096 times=10; cudaFree times=4; cudaMallocAsync size=100; "
        "cudaFreeAsync; cudaMallocManaged size=50",
    )
    here = {"process_pid": program.pid, "zernel_gpu_index": 1}
    assert numbers(batch, USED, **here) == [6 * 4096 + 50]
    assert numbers(batch, PEAK, **here) == [10 * 4096]
    assert numbers(batch, ALLOCATIONS, **here) == [12]
    assert numbers(batch, FREES, **here) == [5]


def test_memory_of_the_driver_api_counts_once(watch: Watch, standin: Standin) -> None:
    batch, program = watched(
        watch,
        standin,
        "cudaSetDevice; cuMemAlloc_v2 size=1000 times=3; cuMemFree_v2; cuMemCreate size=2097152 times=2; cuMemRelease",
    )
    assert numbers(batch, USED, process_pid=program.pid) == [2000 + 2097152]
    assert numbers(batch, ALLOCATIONS, process_pid=program.pid) == [5]
    assert numbers(batch, FREES, process_pid=program.pid) == [2]


def test_failed_allocations_and_frees_change_nothing(watch: Watch, standin: Standin) -> None:
    too_much = 1 << 45
    batch, program = watched(
        watch, standin, f"cudaMalloc size=64; cudaMalloc size={too_much} times=2; cudaFree; cudaFree"
    )
    assert numbers(batch, USED, process_pid=program.pid) == [0]
    assert numbers(batch, PEAK, process_pid=program.pid) == [64]
    assert numbers(batch, ALLOCATIONS, process_pid=program.pid) == [1]
    assert numbers(batch, FREES, process_pid=program.pid) == [1]
    assert numbers(batch, ERRORS, process_pid=program.pid, error_type="out_of_memory") == [2]


def test_a_device_chosen_before_attaching_is_unknown(fresh_watch: Watch, standin: Standin) -> None:
    batch, program = watched(fresh_watch, standin, "cudaMalloc size=10", f"{RUNTIME}; cudaSetDevice device=1")
    assert numbers(batch, USED, process_pid=program.pid, zernel_gpu_index="unknown") == [10]


def device_numbers(watch: Watch, standin: Standin, script: str, visible: str = "") -> dict[object, int]:
    """Bytes used on each device, by a program that starts after the probes are on."""
    with standin.start() as first:
        for command in RUNTIME.split("; "):
            first.do(command)
        watch.attach()
    with standin.start(environment={"CUDA_VISIBLE_DEVICES": visible} if visible else {}) as program:
        for command in f"{RUNTIME}; {script}".split("; "):
            program.do(command)
        points = metrics_of(watch.read())[USED].gauge.data_points
    return {
        str(attributes["zernel_gpu_index"]): point.as_int
        for point in points
        if (attributes := attributes_of(point))["process_pid"] == program.pid
    }


@pytest.mark.parametrize("allocate", ["cudaMalloc size=10", "cuMemAlloc_v2 size=10"])
def test_a_thread_without_a_chosen_device_uses_the_first_one(watch: Watch, standin: Standin, allocate: str) -> None:
    assert device_numbers(watch, standin, f"cudaDeviceSynchronize; {allocate} threads=2") == {"0": 20}


def test_the_first_device_is_the_first_visible_one(watch: Watch, standin: Standin) -> None:
    assert device_numbers(watch, standin, "cudaMalloc size=10", visible="5,3") == {"5": 10}


def test_a_chosen_device_applies_to_its_thread_only(watch: Watch, standin: Standin) -> None:
    script = "cudaSetDevice device=1; cudaMalloc size=1; cudaMalloc size=10 threads=2"
    assert device_numbers(watch, standin, script) == {"1": 1, "0": 20}


def test_a_failed_choice_changes_nothing(watch: Watch, standin: Standin) -> None:
    script = "cudaSetDevice device=1; cudaSetDevice device=9; cudaMalloc size=1"
    assert device_numbers(watch, standin, script) == {"1": 1}


@pytest.mark.parametrize(
    ("script", "devices"),
    [
        ("cuDevicePrimaryCtxRetain device=1; cuCtxSetCurrent; cuMemAlloc_v2 size=1", {"1": 1}),
        ("cuCtxCreate_v2 device=1; cudaMalloc size=1", {"1": 1}),
        ("cuCtxCreate_v2 device=1; cuMemAlloc_v2 size=1; cuCtxPopCurrent_v2; cuMemAlloc_v2 size=20", {"1": 1, "0": 20}),
        (
            "cuDevicePrimaryCtxRetain device=1; cuCtxPushCurrent_v2; cudaMalloc size=1; cuCtxPopCurrent_v2; cudaFree",
            {"1": 0},
        ),
        (
            "cuCtxCreate_v2 device=1; cudaSetDevice; cudaMalloc size=1; cuCtxPopCurrent_v2; cudaMalloc size=20",
            {"0": 21},
        ),
        ("cuMemCreate device=1 size=1; cuMemCreate device=0 size=20", {"1": 1, "0": 20}),
    ],
)
def test_the_device_is_the_one_of_the_current_context(
    watch: Watch, standin: Standin, script: str, devices: dict[object, int]
) -> None:
    assert device_numbers(watch, standin, script) == devices


def test_the_device_of_a_context_made_before_attaching_is_unknown(fresh_watch: Watch, standin: Standin) -> None:
    before = f"{RUNTIME}; cuDevicePrimaryCtxRetain device=1"
    script = "cudaSetDevice device=0; cudaMalloc size=1; cuCtxSetCurrent; cudaMalloc size=20"
    batch, program = watched(fresh_watch, standin, script, before)
    used = {
        index: sum(numbers(batch, USED, process_pid=program.pid, zernel_gpu_index=index)) for index in (0, 1, "unknown")
    }
    assert used == {0: 1, 1: 0, "unknown": 20}


def test_devices_have_the_machine_s_indexes(watch: Watch, standin: Standin) -> None:
    with standin.start(environment={"CUDA_VISIBLE_DEVICES": "5,3"}, loads=["libcudart.so.12"]) as program:
        watch.attach()
        program.do("cudaSetDevice device=1")
        program.do("cudaMalloc size=10")
        batch = watch.read()
    assert numbers(batch, USED, process_pid=program.pid, zernel_gpu_index=3) == [10]


@pytest.mark.parametrize(
    ("text", "devices"),
    [("0", (0,)), ("2, 3", (2, 3)), ("", ()), ("GPU-8932f937", ()), ("1,1", ()), ("0,-1", ()), ("٣", ()), ("9999", ())],
)
def test_only_plain_lists_of_devices_are_parsed(text: str, devices: tuple[int, ...]) -> None:
    assert plain_list(text) == devices
