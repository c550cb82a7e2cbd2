"""Every hit of a probe is counted, since the cost of probes is estimated from hits."""

from itertools import chain

import pytest

from otel_zernel_receivers.ebpf.probes.calls import CallKind
from otel_zernel_receivers.ebpf.probes.catalogue import CUPTI
from otel_zernel_receivers.ebpf.probes.libraries import PROBES
from tests.receivers.ebpf.standin import Standin
from tests.receivers.ebpf.watching import Watch, numbers

CUDART, CUDA, NCCL = "libcudart.so.12", "libcuda.so.1", "libnccl.so.2"
TORCH_CPU, TORCH_PYTHON, C10 = "libtorch_cpu.so", "libtorch_python.so", "libc10.so"

CASES = [
    (CallKind.CALL, CUDART, "cudaLaunchKernel", 1),
    (CallKind.WAIT, CUDART, "cudaStreamSynchronize", 1),
    (CallKind.COPY, CUDART, "cudaMemcpyAsync", 1),
    (CallKind.ALLOCATE, CUDART, "cudaMalloc", 1),
    (CallKind.RELEASE, CUDART, "cudaFree", 1),
    (CallKind.DEVICE, CUDART, "cudaSetDevice", 1),
    (CallKind.CONTEXT, CUDA, "cuDevicePrimaryCtxRetain", 1),
    (CallKind.CONTEXT_CREATE, CUDA, "cuCtxCreate_v2", 1),
    (CallKind.CONTEXT_SET, CUDA, "cuCtxSetCurrent", 1),
    (CallKind.CONTEXT_PUSH, CUDA, "cuCtxPushCurrent_v2", 1),
    (CallKind.CONTEXT_POP, CUDA, "cuCtxPopCurrent_v2", 1),
    (CallKind.COLLECTIVE, NCCL, "ncclAllReduce", 1),
    (CallKind.GROUP, NCCL, "ncclGroupStart", 1),
    (CallKind.COMMUNICATOR, NCCL, "ncclCommInitRank", 1),
    (CallKind.COMMUNICATOR_END, NCCL, "ncclCommDestroy", 1),
    (CallKind.COMMUNICATOR_SIZE, NCCL, "ncclCommCount", 1),
    (CallKind.COMMUNICATOR_RANK, NCCL, "ncclCommUserRank", 1),
    (CallKind.SCOPE_BEGIN, TORCH_CPU, "record_function_enter_new", 1),
    (CallKind.SCOPE_END, TORCH_CPU, "RecordFunction::end", 1),
    (CallKind.WORK_ISSUE, TORCH_CPU, "Work::Work", 1),
    (CallKind.WORK_WAIT, TORCH_CPU, "Work::wait", 2),  # and its return
    (CallKind.WORK_WAIT_END, TORCH_CPU, "Work::wait", 2),
    (CallKind.REDUCER, TORCH_CPU, "Reducer::finalize_backward", 1),
    (CallKind.BACKWARD, TORCH_PYTHON, "THPEngine_run_backward", 1),
    (CallKind.OPERATOR, TORCH_CPU, "addmm", 1),
    (CallKind.LOSS, TORCH_CPU, "cross_entropy_loss", 1),
    (CallKind.REDUCTION, TORCH_CPU, "mean", 1),
    (CallKind.SAMPLE, TORCH_CPU, "multinomial", 1),
    (CallKind.UPDATE, TORCH_CPU, "_foreach_add_", 1),
    (CallKind.GRAD_MODE, C10, "set_grad_enabled", 1),
    (CallKind.INFERENCE_BEGIN, TORCH_PYTHON, "inference_mode.__enter__", 1),
    (CallKind.INFERENCE_END, TORCH_PYTHON, "inference_mode.__exit__", 1),
    (CallKind.WORK_NUMBER, TORCH_CPU, "AsyncWork::AsyncWork", 1),
    (CallKind.WORK_FINISH, TORCH_CPU, "Work::finish", 1),
    (CallKind.PROCESS_GROUP, TORCH_CPU, "ProcessGroup::getBackend", 1),
    (CallKind.TRANSFER, TORCH_CPU, "ProcessGroupGloo::send", 1),
    (CallKind.BATCH, TORCH_CPU, "random_", 1),
    (CallKind.NOISE, TORCH_CPU, "normal_", 1),
    (CallKind.IN_PLACE, TORCH_CPU, "mul_", 1),
    (CallKind.AUTOCAST, TORCH_CPU, "autocast.__enter__", 1),
    (CallKind.FUNCTION, TORCH_PYTHON, "Function.apply", 1),
]


@pytest.mark.parametrize(
    ("library", "function", "hits"), [case[1:] for case in CASES], ids=[case[0].name for case in CASES]
)
def test_hits_are_the_calls_made(watch: Watch, standin: Standin, library: str, function: str, hits: int) -> None:
    with standin.start() as program:
        program.do(f"load {library}")
        watch.attach()
        program.do(f"{function} times=5 threads=3")
        program.do(f"{function} times=20")
        assert len(program.calls(function)) == 35
        assert sum(numbers(watch.read(), "zernel.probe.hits", process_pid=program.pid)) == 35 * hits


def test_every_kind_of_probe_is_tested() -> None:
    elsewhere = {probe.kind for probe in CUPTI}  # jobs/test_device_records.py
    assert {kind for kind, *_ in CASES} == {probe.kind for probe in chain(*PROBES.values())} - elsewhere


def test_driver_calls_by_the_runtime_are_hits_too(watch: Watch, standin: Standin) -> None:
    with standin.start(loads=[CUDART, CUDA]) as program:
        watch.attach()
        program.do("cudaLaunchKernel times=10")
        assert sum(numbers(watch.read(), "zernel.probe.hits", process_pid=program.pid)) == 20


def test_the_last_hits_of_an_ended_process_are_reported_once(watch: Watch, standin: Standin) -> None:
    with standin.start(loads=[CUDART, CUDA]) as program:
        watch.attach()
        program.do("cudaLaunchKernel times=3")
        watch.read()
        watch.taken()
        program.do("cudaLaunchKernel times=10")
    reported = []
    for _ in range(3):
        reported += numbers(watch.read(), "zernel.probe.hits", process_pid=program.pid)
        watch.taken()
    assert reported == [20]
