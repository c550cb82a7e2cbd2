"""The probed functions of each library: how each is probed, and the operation that its calls count as.

Positions of arguments come from the signatures in cuda_runtime_api.h, cuda.h and nccl.h.
"""

import platform
from dataclasses import dataclass, replace

from otel_zernel_receivers.ebpf.binaries.spellings import ANY, beginnings
from otel_zernel_receivers.ebpf.probes import operators
from otel_zernel_receivers.ebpf.probes.calls import ENTRY_ONLY, CallKind, Flag, Operation


@dataclass(frozen=True, slots=True)
class Probe:
    """A probed function."""

    function: str
    """Its name; for C++, its qualified name."""
    operation: Operation
    flags: Flag = Flag.NONE
    kind: CallKind = CallKind.CALL
    arguments: tuple[int, ...] = ()
    """Positions, from 1, of the arguments that this kind of call needs. 0 for one that the function does not have."""
    first_arguments: tuple[str, ...] = ()
    """For C++, the possible mangled names of its first arguments. Other arguments may follow. Empty for C."""
    mangled: tuple[str, ...] = ()
    """For C++, the possible beginnings of its mangled name, if they do not follow from the qualified name."""
    is_local: bool = False
    """Whether some releases do not export it. There it is found in the full symbol table, unless that is stripped."""

    is_at_tail_call: bool = False
    """Whether the probe is on the jump to the function that it calls last (see binaries/code_shapes.py)."""
    is_at_return: bool = False
    """Whether the probe is on the return instructions, which the function does not execute if it throws."""
    is_optional: bool = False
    """Whether no mark depends on it."""
    provider: str = ""
    """Of a USDT probe, which `function` names. Its `arguments` have 16 bits each: see binaries/usdt.py."""

    @property
    def beginnings(self) -> tuple[bytes, ...]:
        """The possible beginnings of its name in a symbol table; empty for C, where the whole name is known."""
        if self.mangled:
            return tuple(name.encode() for name in self.mangled)
        names = beginnings(self.function, is_local=self.is_local) if self.first_arguments else ()
        return tuple(name + arguments.encode() for name in names for arguments in self.first_arguments)

    @property
    def cookie(self) -> int:
        """All facts in one number, which the kernel passes to the program at each hit (layout: bpf/kinds.bpf.h)."""
        bits = 16 if self.provider else 4
        positions = sum(position << bits * nth for nth, position in enumerate(self.arguments))
        number = _NUMBERS.get(self.function, 0)
        return positions << 32 | self.flags | number << 16 | self.kind << 8 | self.operation

    @property
    def is_hot(self) -> bool:
        """Whether a training job calls the function thousands of times per second."""
        return self.kind in (CallKind.CALL, CallKind.COPY)

    @property
    def has_return(self) -> bool:
        """Whether the function's return is probed too."""
        return self.kind not in ENTRY_ONLY

    @property
    def target(self) -> str:
        """The function, or its returns if the probe is on those."""
        return f"returns of {self.function}" if self.is_at_return else self.function


def _launches(flags: Flag, operation: Operation, *functions: str) -> tuple[Probe, ...]:
    return tuple(Probe(function, operation, flags) for function in functions)


def _waits(flags: Flag, *functions: str) -> tuple[Probe, ...]:
    return tuple(Probe(function, Operation.SYNC, flags, CallKind.WAIT) for function in functions)


def _copies(flags: Flag, operation: Operation, size: int, *functions: str, kind: int = 0) -> tuple[Probe, ...]:
    """Copies. Argument `size` is the number of bytes, and argument `kind`, unless 0, the direction."""
    return tuple(Probe(function, operation, flags, CallKind.COPY, (size, kind)) for function in functions)


def _allocations(flags: Flag, *functions: str) -> tuple[Probe, ...]:
    return tuple(Probe(function, Operation.UNCOUNTED, flags, CallKind.ALLOCATE, (1, 2)) for function in functions)


def _releases(flags: Flag, *functions: str) -> tuple[Probe, ...]:
    return tuple(Probe(function, Operation.UNCOUNTED, flags, CallKind.RELEASE, (1,)) for function in functions)


def _context(function: str, kind: CallKind, *arguments: int) -> Probe:
    return Probe(function, Operation.UNCOUNTED, Flag.NONE, kind, arguments)


def _both_streams(*functions: str) -> tuple[str, ...]:
    """The functions, and their variants for programs that are compiled with one default stream per thread."""
    return (*functions, *(f"{function}_ptsz" for function in functions))


_RUNTIME, _DRIVER, _WAITS = Flag.RUNTIME, Flag.DRIVER, Flag.BLOCKING

CUDA_RUNTIME = (
    *_launches(
        _RUNTIME,
        Operation.RUNTIME_LAUNCH,
        *_both_streams("cudaLaunchKernel", "cudaLaunchKernelExC", "cudaLaunchCooperativeKernel"),
    ),
    *_launches(_RUNTIME, Operation.GRAPH_LAUNCH, *_both_streams("cudaGraphLaunch")),
    *_waits(_RUNTIME, "cudaDeviceSynchronize", "cudaEventSynchronize", *_both_streams("cudaStreamSynchronize")),
    *_copies(_RUNTIME | _WAITS, Operation.COPY_HOST_TO_HOST, 3, "cudaMemcpy", "cudaMemcpy_ptds", kind=4),
    *_copies(_RUNTIME, Operation.COPY_HOST_TO_HOST, 3, *_both_streams("cudaMemcpyAsync"), kind=4),
    *_allocations(_RUNTIME, "cudaMalloc", "cudaMallocManaged", *_both_streams("cudaMallocAsync")),
    *_releases(_RUNTIME, "cudaFree", *_both_streams("cudaFreeAsync")),
    Probe("cudaSetDevice", Operation.UNCOUNTED, _RUNTIME, CallKind.DEVICE, (1,)),
)

CUDA_DRIVER = (
    *_launches(
        _DRIVER,
        Operation.DRIVER_LAUNCH,
        *_both_streams("cuLaunchKernel", "cuLaunchKernelEx", "cuLaunchCooperativeKernel"),
    ),
    *_launches(_DRIVER, Operation.GRAPH_LAUNCH, *_both_streams("cuGraphLaunch")),
    *_waits(_DRIVER, "cuCtxSynchronize", "cuEventSynchronize", *_both_streams("cuStreamSynchronize")),
    *_copies(_DRIVER | _WAITS, Operation.COPY_HOST_TO_DEVICE, 3, "cuMemcpyHtoD_v2", "cuMemcpyHtoD_v2_ptds"),
    *_copies(_DRIVER | _WAITS, Operation.COPY_DEVICE_TO_HOST, 3, "cuMemcpyDtoH_v2", "cuMemcpyDtoH_v2_ptds"),
    *_copies(_DRIVER, Operation.COPY_DEVICE_TO_DEVICE, 3, "cuMemcpyDtoD_v2", "cuMemcpyDtoD_v2_ptds"),
    *_copies(_DRIVER, Operation.COPY_HOST_TO_DEVICE, 3, *_both_streams("cuMemcpyHtoDAsync_v2")),
    *_copies(_DRIVER, Operation.COPY_DEVICE_TO_HOST, 3, *_both_streams("cuMemcpyDtoHAsync_v2")),
    *_copies(_DRIVER, Operation.COPY_DEVICE_TO_DEVICE, 3, *_both_streams("cuMemcpyDtoDAsync_v2")),
    *_allocations(_DRIVER, "cuMemAlloc_v2", "cuMemAllocManaged", *_both_streams("cuMemAllocAsync")),
    Probe("cuMemCreate", Operation.UNCOUNTED, _DRIVER | Flag.HANDLE, CallKind.ALLOCATE, (1, 2, 3)),
    *_releases(_DRIVER, "cuMemFree_v2", *_both_streams("cuMemFreeAsync")),
    *_releases(_DRIVER | Flag.HANDLE, "cuMemRelease"),
    # Contexts that the runtime creates matter too. Without Flag.DRIVER, calls inside runtime calls are counted.
    _context("cuDevicePrimaryCtxRetain", CallKind.CONTEXT, 1, 2),
    _context("cuCtxCreate_v2", CallKind.CONTEXT_CREATE, 1, 3),
    _context("cuCtxCreate_v3", CallKind.CONTEXT_CREATE, 1, 5),
    _context("cuCtxCreate_v4", CallKind.CONTEXT_CREATE, 1, 4),
    _context("cuCtxSetCurrent", CallKind.CONTEXT_SET, 1),
    _context("cuCtxPushCurrent_v2", CallKind.CONTEXT_PUSH, 1),
    _context("cuCtxPopCurrent_v2", CallKind.CONTEXT_POP),
)


def _torch(function: str, kind: CallKind, first_arguments: tuple[str, ...] = ANY, *, is_local: bool = False) -> Probe:
    return Probe(function, Operation.UNCOUNTED, kind=kind, first_arguments=first_arguments, is_local=is_local)


def _python(function: str, kind: CallKind, *mangled: str) -> Probe:
    """A function of PyTorch's Python bindings, by the beginnings of its mangled name."""
    return Probe(function, Operation.UNCOUNTED, kind=kind, first_arguments=ANY, mangled=mangled, is_local=True)


# std::string const& in GCC's old string ABI (PyTorch up to 2.6) and in the new one. Both strings begin with the pointer
# to the characters, which the kernel side reads. Strings of libc++ do not.
_STRINGS = ("RKSs", "RKNSt7__cxx1112basic_stringIc")


def _operators(kind: CallKind, *names: str) -> tuple[Probe, ...]:
    return tuple(_torch(f"at::_ops::{name}::call", kind) for name in names)


# c10d::Work::wait returns true, or throws if a collective failed. So its return instructions are probed. The function
# that it calls last would be no substitute: it differs between releases, and 2.5 and older call none.
# torch::autograd::Engine::execute is exported by every release, but exceptions pass through it: a return probe would
# end the job.
# record_function_exit_new(scope) calls at::RecordFunction::end() and nothing else. The latter is exported, but autograd
# calls it, too, for every node of a backward pass: some hundred times in a step.
_SCOPE_EXIT = replace(
    _torch("torch::autograd::profiler::record_function_exit_new", CallKind.SCOPE_END, is_local=True),
    is_at_tail_call=True,
    is_optional=True,
)
# The constructor of gloo's collectives gets their number in the group, and their operation. It gets objects by their
# addresses, in registers.
_WORK_NUMBER = _torch("c10d::ProcessGroupGloo::AsyncWork::AsyncWork", CallKind.WORK_NUMBER)
_WORK_NUMBERS = (
    replace(
        _WORK_NUMBER,
        first_arguments=("St10shared_ptrIN4gloo7ContextEESt6vectorIS6_IN2at6TensorESaIS8_EESaISA_EENS_6OpTypeEm",),
        arguments=(5, 2, 4),
    ),
    replace(
        _WORK_NUMBER,
        first_arguments=("St6vectorIS2_IN2at6TensorESaIS4_EESaIS6_EENS_6OpTypeEm",),  # PyTorch 2.6 and older
        arguments=(4, 0, 3),
    ),
)
# Every collective asks its process group for the backend of its device. The result has an address of its own, which on
# x86-64 is the first argument.
_PROCESS_GROUP = replace(
    _torch("c10d::ProcessGroup::getBackend", CallKind.PROCESS_GROUP, ("N3c1010DeviceTypeE",)),
    arguments=(2 if platform.machine() == "x86_64" else 1,),
    is_optional=True,
)
# gloo's send and recv override c10d::Work::wait, and return a variable. Both call finishAndThrow when the wait is over.
# A send writes to its socket before it makes its Work.
_POINT_TO_POINT_WAITS = tuple(
    replace(_torch(function, kind), is_optional=True)
    for function, kind in (
        ("c10d::ProcessGroupGloo::send", CallKind.TRANSFER),
        ("c10d::ProcessGroupGloo::SendWork::wait", CallKind.WORK_WAIT),
        ("c10d::ProcessGroupGloo::RecvWork::wait", CallKind.WORK_WAIT),
        ("c10d::Work::finishAndThrow", CallKind.WORK_WAIT_END),
    )
)
# torch.autocast casts the inputs and the weights of a pass before its first operator.
_AUTOCAST = replace(_torch("at::autocast::increment_nesting", CallKind.AUTOCAST), is_optional=True)
TORCH_CPU = (
    _torch("torch::autograd::profiler::record_function_enter_new", CallKind.SCOPE_BEGIN, _STRINGS),
    _SCOPE_EXIT,
    _torch("at::RecordFunction::end", CallKind.SCOPE_END),
    _torch("c10d::Work::Work", CallKind.WORK_ISSUE),
    *_WORK_NUMBERS,
    _PROCESS_GROUP,
    _torch("c10d::Work::wait", CallKind.WORK_WAIT),
    replace(_torch("c10d::Work::wait", CallKind.WORK_WAIT_END), is_at_return=True),
    replace(_torch("c10d::Work::finish", CallKind.WORK_FINISH), is_optional=True),
    *_POINT_TO_POINT_WAITS,
    _torch("c10d::Reducer::finalize_backward", CallKind.REDUCER),
    *_operators(CallKind.OPERATOR, *operators.OPERATORS),
    *_operators(CallKind.LOSS, *operators.LOSSES),
    *_operators(CallKind.REDUCTION, *operators.REDUCTIONS),
    *_operators(CallKind.SAMPLE, *operators.SAMPLES),
    *_operators(CallKind.UPDATE, *operators.UPDATES),
    *_operators(CallKind.IN_PLACE, *operators.IN_PLACE),
    *_operators(CallKind.BATCH, *operators.BATCHES),
    *_operators(CallKind.NOISE, *operators.NOISES),
    _AUTOCAST,
)
_INFERENCE_MODE = (
    "_ZZN8pybind1112cpp_function10initializeIZN5torch4impl29py_context_manager_DEPRECATEDIN3c1013InferenceModeEJbEEEvR"
    "KNS_7module_EPKcEUlRNS3_28DeprecatedRAIIContextManagerIS6_JbEEE"
)
"""The functions of Python's context manager torch.inference_mode. The types of their other arguments follow.

The C++ functions below it are no substitute: autograd calls them twice for each node of a backward pass.
"""
# torch.autograd.Function.apply runs the forward function of a custom function, and models that are compiled.
_FUNCTION = replace(
    _python(
        "THPFunction_apply",
        CallKind.FUNCTION,
        *("_Z17THPFunction_applyP", "_ZL17THPFunction_applyP", "_ZN12_GLOBAL__N_117THPFunction_applyEP"),
    ),
    is_optional=True,
)
# CPython calls THPEngine_run_backward for loss.backward(). It catches every exception. torch.mm and torch.bmm are
# probed as functions of Python, since backward calls their operators for every layer.
TORCH_PYTHON = (
    _torch("THPEngine_run_backward", CallKind.BACKWARD, is_local=True),
    *(
        replace(_torch(f"torch::autograd::THPVariable_{name}", CallKind.OPERATOR, is_local=True), is_optional=True)
        for name in ("mm", "bmm")
    ),
    _python("torch.inference_mode.__enter__", CallKind.INFERENCE_BEGIN, f"{_INFERENCE_MODE}E_v"),
    _python(
        "torch.inference_mode.__exit__",
        CallKind.INFERENCE_END,
        f"{_INFERENCE_MODE}RKNS_6objectE",
        f"{_INFERENCE_MODE}NS_6objectE",
    ),
    _FUNCTION,
)
C10 = (_torch("c10::GradMode::set_enabled", CallKind.GRAD_MODE),)

# Parca's CUPTI library reads the records of kernels only while `cuda_correlation` is probed. `kernel_executed` has some
# of them, `activity_batch`, of newer releases, all.
CUPTI = tuple(
    Probe(function, Operation.UNCOUNTED, kind=kind, arguments=arguments, provider="parcagpu")
    for function, kind, arguments in (
        ("cuda_correlation", CallKind.CORRELATION, ()),
        ("activity_batch", CallKind.ACTIVITIES, (1, 2)),
        ("kernel_executed", CallKind.KERNEL_RECORD, (1, 2)),
    )
)

_NCCL = Flag.NCCL


def _collective(function: str, operation: Operation, count: int, communicator: int, flags: Flag = _NCCL) -> Probe:
    """A collective whose argument `count` is followed by the element type."""
    return Probe(function, operation, flags, CallKind.COLLECTIVE, (count, count + 1, communicator))


def _communicator(function: str, *arguments: int, flags: Flag = _NCCL) -> Probe:
    """Arguments: the place for the resulting communicator; then, if the function has them, number of ranks, rank and
    unique id."""
    return Probe(function, Operation.UNCOUNTED, flags, CallKind.COMMUNICATOR, arguments)


# The id of 128 bytes before the rank is passed on the stack on x86-64, so it takes no register; on arm64 by reference.
_RANK, _UNIQUE_ID = (3, 7) if platform.machine() == "x86_64" else (4, 3)

NCCL = (
    _collective("ncclAllReduce", Operation.ALL_REDUCE, 3, 6),
    _collective("ncclReduceScatter", Operation.REDUCE_SCATTER, 3, 6, _NCCL | Flag.PER_RANK),
    _collective("ncclAllGather", Operation.ALL_GATHER, 3, 5, _NCCL | Flag.PER_RANK),
    _collective("ncclBroadcast", Operation.BROADCAST, 3, 6),
    _collective("ncclReduce", Operation.REDUCE, 3, 7),
    _collective("ncclSend", Operation.SEND, 2, 5),
    _collective("ncclRecv", Operation.RECEIVE, 2, 5),
    Probe("ncclGroupStart", Operation.UNCOUNTED, _NCCL, CallKind.GROUP),
    Probe("ncclGroupEnd", Operation.UNCOUNTED, _NCCL | Flag.GROUP_END, CallKind.GROUP),
    _communicator("ncclCommInitRank", 1, 2, _RANK, _UNIQUE_ID),
    _communicator("ncclCommInitRankConfig", 1, 2, _RANK, _UNIQUE_ID),
    _communicator("ncclCommInitRankScalable", 1, 2, 3),
    _communicator("ncclCommInitAll", 1, 2, flags=_NCCL | Flag.ARRAY),
    _communicator("ncclCommSplit", 4),
    Probe("ncclCommCount", Operation.UNCOUNTED, _NCCL, CallKind.COMMUNICATOR_SIZE, (1, 2)),
    Probe("ncclCommUserRank", Operation.UNCOUNTED, _NCCL, CallKind.COMMUNICATOR_RANK, (1, 2)),
    Probe("ncclCommDestroy", Operation.UNCOUNTED, _NCCL, CallKind.COMMUNICATOR_END, (1,)),
    Probe("ncclCommAbort", Operation.UNCOUNTED, _NCCL, CallKind.COMMUNICATOR_END, (1,)),
)

_FUNCTIONS = (
    "",
    *sorted({probe.function for probe in (*CUDA_RUNTIME, *CUDA_DRIVER, *NCCL, *TORCH_CPU, *TORCH_PYTHON, *C10)}),
)
_NUMBERS = {function: number for number, function in enumerate(_FUNCTIONS)}

assert len(_FUNCTIONS) <= 256  # noqa: S101  # a mistake in this file


def function_of(flags: int) -> str:
    """The name of the function whose number is in an event's flags."""
    return _FUNCTIONS[flags >> 16 & 0xFF]
