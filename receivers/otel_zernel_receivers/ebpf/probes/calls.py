"""The vocabulary of probed calls, shared with the BPF side: operations, phases, kinds of calls and flags.

A test compares it with `bpf/kinds.bpf.h`.
"""

from enum import IntEnum, IntFlag

from otel_zernel_receivers.ebpf.kernel.kernel_structs import OPERATIONS, PHASES


class Operation(IntEnum):
    """The operation that a call counts as. It is part of a series' key."""

    CALIBRATION = 0
    RUNTIME_LAUNCH = 1
    DRIVER_LAUNCH = 2
    GRAPH_LAUNCH = 3
    SYNC = 4
    COPY_HOST_TO_HOST = 8
    COPY_HOST_TO_DEVICE = 9
    COPY_DEVICE_TO_HOST = 10
    COPY_DEVICE_TO_DEVICE = 11
    COPY_DEFAULT = 12
    """Copies are numbered as in `enum cudaMemcpyKind`, from COPY_HOST_TO_HOST on."""
    DATALOADER_WAIT = 16
    FUTEX_WAIT = 17
    ALL_REDUCE = 24
    REDUCE_SCATTER = 25
    ALL_GATHER = 26
    BROADCAST = 27
    REDUCE = 28
    SEND = 29
    RECEIVE = 30
    """The last collective. The same number + 8 counts a collective until it is over."""
    UNCOUNTED = 63
    """A call that is probed for its arguments or results. Its duration is not counted."""


assert max(Operation) < OPERATIONS  # noqa: S101  # a mistake in this file


class Phase(IntEnum):
    """The phase of training that a process is in. It is part of a series' key."""

    UNKNOWN = 0
    DATA_LOADING = 1
    GPU_COMPUTE = 2
    NCCL_COLLECTIVE = 3
    OPTIMIZER_STEP = 4


assert max(Phase) < PHASES  # noqa: S101  # a mistake in this file


class CallKind(IntEnum):
    """The kind of a probed call: how the kernel handles its entry and return (`CALL_KINDS` in bpf/kinds.bpf.h)."""

    CALL = 0
    WAIT = 1
    COPY = 2
    ALLOCATE = 3
    RELEASE = 4
    DEVICE = 5
    SCOPE_BEGIN = 6
    SCOPE_END = 7
    BACKWARD = 8
    COLLECTIVE = 9
    GROUP = 10
    COMMUNICATOR = 11
    COMMUNICATOR_END = 12
    COMMUNICATOR_SIZE = 13
    COMMUNICATOR_RANK = 14
    WORK_WAIT = 15
    WORK_WAIT_END = 16
    REDUCER = 17
    CONTEXT = 18
    CONTEXT_CREATE = 19
    CONTEXT_SET = 20
    CONTEXT_PUSH = 21
    CONTEXT_POP = 22
    WORK_ISSUE = 23
    OPERATOR = 24
    LOSS = 25
    REDUCTION = 26
    SAMPLE = 27
    UPDATE = 28
    GRAD_MODE = 29
    INFERENCE_BEGIN = 30
    INFERENCE_END = 31
    WORK_NUMBER = 32
    TRANSFER = 33
    BATCH = 34
    NOISE = 35
    AUTOCAST = 36
    IN_PLACE = 37
    WORK_FINISH = 38
    ACTIVITIES = 39
    KERNEL_RECORD = 40
    CORRELATION = 41
    PROCESS_GROUP = 42
    FUNCTION = 43


class Flag(IntFlag):
    """Further facts about a probed function, for the kernel side (bpf/kinds.bpf.h)."""

    NONE = 0
    RUNTIME = 1 << 24
    DRIVER = 1 << 25
    BLOCKING = 1 << 26
    """A copy that also waits for the GPU."""
    HANDLE = 1 << 27
    """Memory that has a handle instead of an address."""
    NCCL = 1 << 28
    PER_RANK = 1 << 29
    """A collective whose count is the count of one rank."""
    GROUP_END = 1 << 30
    ARRAY = 1 << 31
    """Creates the communicators of all ranks at once."""


ENTRY_ONLY = (
    CallKind.SCOPE_END,
    CallKind.COMMUNICATOR_END,
    CallKind.WORK_WAIT,
    CallKind.WORK_WAIT_END,
    CallKind.REDUCER,
    CallKind.WORK_ISSUE,
    CallKind.OPERATOR,
    CallKind.LOSS,
    CallKind.REDUCTION,
    CallKind.SAMPLE,
    CallKind.UPDATE,
    CallKind.GRAD_MODE,
    CallKind.INFERENCE_BEGIN,
    CallKind.INFERENCE_END,
    CallKind.WORK_NUMBER,
    CallKind.TRANSFER,
    CallKind.BATCH,
    CallKind.NOISE,
    CallKind.AUTOCAST,
    CallKind.IN_PLACE,
    CallKind.WORK_FINISH,
    CallKind.ACTIVITIES,
    CallKind.KERNEL_RECORD,
    CallKind.CORRELATION,
    CallKind.PROCESS_GROUP,
    CallKind.FUNCTION,
)
"""Kinds of calls whose return is not probed."""

HOST_ENQUEUE, HOST_UPPER_BOUND = "host_enqueue", "host_upper_bound"
_UPPER_BOUND = 8

COLLECTIVES = {
    operation + later: (name, timing)
    for operation, name in {
        Operation.ALL_REDUCE: "all_reduce",
        Operation.REDUCE_SCATTER: "reduce_scatter",
        Operation.ALL_GATHER: "all_gather",
        Operation.BROADCAST: "broadcast",
        Operation.REDUCE: "reduce",
        Operation.SEND: "send",
        Operation.RECEIVE: "receive",
    }.items()
    for later, timing in ((0, HOST_ENQUEUE), (_UPPER_BOUND, HOST_UPPER_BOUND))
}
"""Name and timing source of each operation that is a collective."""
