"""The numbers and structs that both sides share, as numpy types.

The C side is in bpf/: hdr.bpf.h, process.bpf.h, cpu_takers.bpf.h, thread.bpf.h, workers.bpf.h, gil.bpf.h,
series.bpf.h, losses.bpf.h, errors.bpf.h, snapshot.bpf.h, events.bpf.h, lifetime.bpf.c, thread_state.bpf.h,
address.bpf.h, cuda.bpf.c, communicators.bpf.c, collectives.bpf.c, distributed.bpf.c and settings.bpf.h. A test compares
every field with the types in the objects.
"""

import struct
from enum import IntEnum

import numpy as np

HIGHEST_NS = 3_600_000_000_000
"""One hour. Longer durations count as one hour."""
OPERATIONS = 64
PHASES = 8
UNUSED = 0
"""An element of a process's `slots` for a series that it does not have. Else it holds the slot's number + 1."""


class State(IntEnum):
    """The state of a row of the process table."""

    FREE = 0
    LIVE = 1
    IGNORED = 2
    ENDED = 3


class Interval(IntEnum):
    """The kind of interval that an event records."""

    DATA_LOADING = 0
    OPTIMIZER = 1
    ZERO_GRAD = 2
    BACKWARD = 3
    DDP = 4
    USER = 5
    SYNC = 6
    COLLECTIVE = 7
    COMMUNICATOR = 8
    PROCESS = 9
    WORKER = 10
    """A worker's life. The event belongs to the process that it serves; `tid` is the worker's pid."""
    OPERATORS = 11
    DEVICE = 12
    """The busy time of the process's devices. Its times are those of CUPTI's clock."""


class Ending(IntEnum):
    """How a process ended: the `operation` of an event with `Interval.PROCESS`."""

    EXITED = 0
    EXECED = 1
    """It executes another program (execve)."""


class RunEnding(IntEnum):
    """The time that ends a run of operators: the `ending` of the `run` in `FACTS`."""

    AT_OPERATOR = 0
    AT_REGION = 1
    AT_NEXT_RUN = 2


class RunKind(IntEnum):
    """The operators of a run: the `kind` of the `run` in `FACTS`. bpf/events.bpf.h explains each."""

    OF_MODEL = 0
    OF_UPDATE = 1
    OF_LOSS = 2
    OF_BATCH = 3
    OF_NOISE = 4
    OF_IN_PLACE = 5


TAKER_KEY = np.dtype([("row", "<u4"), ("generation", "<u4"), ("tgid", "<u4"), ("reserved", "<u4")])
TAKEN_TIME = np.dtype([("ns", "<u8"), ("name", "S16")])

OUT_OF_MEMORY = 1
"""Set by the receiver in the `flags` of the event of an end, if the kernel's out-of-memory killer caused it."""


class Loss(IntEnum):
    """The reason why something could not be recorded. bpf/losses.bpf.h explains each."""

    NO_PROCESS_ROW = 0
    NO_SERIES_SLOT = 1
    NO_START = 2
    TOO_DEEP = 3
    NO_THREAD = 4
    NO_ALLOCATION = 5
    NO_COMMUNICATOR = 6
    TOO_MANY_COLLECTIVES = 7
    NO_ERROR_CODE = 8
    NO_CONTEXT = 9
    NO_SCOPE = 10
    NO_THREAD_TIMES = 11
    NO_SAMPLE = 12


OTHER_LAUNCHES = np.dtype(
    [("blocked", "<u8"), ("first", "<u8"), ("last", "<u8"), ("count", "<u4"), ("reserved", "<u4")]
)
PROCESS = np.dtype(
    [
        ("began", "<u8"),
        ("pid", "<u4"),
        ("tgid", "<u4"),
        ("generation", "<u4"),
        ("state", "<u4"),
        ("phase", "<u4"),
        ("phase_thread", "<u4"),
        ("phase_since", "<u8"),
        ("lost_events", "<u8"),
        ("lost_from", "<u8"),
        ("lost_until", "<u8"),
        ("world_size", "<u4"),
        ("collectives", "<u4"),
        ("collectives_settled", "<u4"),
        ("reducer_flags", "<u4"),
        ("reducer_since", "<u8"),
        ("marked", "<u8"),
        ("hits", "<u8"),
        ("entry_hits", "<u8"),
        ("operator_hits", "<u8"),
        ("in_place_hits", "<u8"),
        ("off_cpu", "<u8"),
        ("io_wait", "<u8"),
        ("last_burst", "<u8"),
        ("bursts", "<u8"),
        ("reads", "<u8"),
        ("bytes_read", "<u8"),
        ("worker_cpu", "<u8"),
        ("worker_io_wait", "<u8"),
        ("worker_reads", "<u8"),
        ("worker_bytes_read", "<u8"),
        ("trains", "<u4"),
        ("backward_thread", "<u4"),
        ("works", "<u4"),
        ("numbered_ranks", "<u4"),
        ("origin", "<u4"),
        ("issued", "<u4"),
        ("group_rank", "<u4"),
        ("group_ranks", "<u4"),
        ("backward", OTHER_LAUNCHES),
        ("name", "S16"),
        ("slots", "<u4", (OPERATIONS * PHASES,)),
    ]
)

SLOT = np.dtype(
    [
        ("count", "<u8"),
        ("sum", "<u8"),
        ("highest", "<u8"),
        ("bytes", "<u8"),
        ("row", "<u4"),
        ("operation", "<u2"),
        ("phase", "<u2"),
    ]
)

DEVICES = 32
UNKNOWN_DEVICE = DEVICES - 1

MEMORY = np.dtype([("used", "<u8"), ("peak", "<u8"), ("allocations", "<u8"), ("frees", "<u8")])

ERROR = np.dtype([("row", "<u4"), ("generation", "<u4"), ("flags", "<u4"), ("code", "<u4")])

ADDRESS = np.dtype([("value", "<u8"), ("row", "<u4"), ("generation", "<u4"), ("is_handle", "<u8")])

STATES = 16
"""The states in a snapshot."""
CODES = 4
FRAME_POSITIONS = 4
WAITS = 8
"""The states of waits in system calls."""

SNAPSHOT = np.dtype(
    [
        ("time", "<u8"),
        ("times", "<u8", (STATES,)),
        ("last_operator", "<u8"),
        ("first_launch", "<u8"),
        ("last_launch", "<u8"),
        ("read", "<u8"),
        ("copied", "<u8"),
        ("operators", "<u4"),
        ("launches", "<u4"),
        ("copies", "<u4"),
        ("collectives", "<u4"),
        ("file_faults", "<u4"),
        ("minor_faults", "<u4"),
        ("major_faults", "<u4"),
        ("known", "<u4"),
        ("samples", "<u2", (CODES,)),
        ("frame_times", "<u4", (FRAME_POSITIONS,)),
        ("written", "<u8"),
        ("writing", "<u8"),
        ("backward_blocked", "<u8"),
        ("backward_first_launch", "<u8"),
        ("backward_last_launch", "<u8"),
        ("backward_launches", "<u4"),
        ("forks", "<u4"),
        ("hits", "<u8"),
        ("giving", "<u8"),
        ("before_backward", "<u4", (WAITS,)),
        ("after_backward", "<u8"),
        ("sampled_before", "<u4"),
        ("sampled_after", "<u4"),
    ]
)

RUN_FACTS = np.dtype(
    [
        ("covered", "<u8"),
        ("count", "<u4"),
        ("parts", "<u4"),
        ("ending", "<u4"),
        ("is_without_grad", "<u2"),
        ("kind", "<u2"),
    ]
)

COMMUNICATION_FACTS = np.dtype(
    [("id", "<u8"), ("communicator", "<u8"), ("bytes", "<u8"), ("rank", "<i4"), ("size", "<u4")]
)

END_FACTS = np.dtype([("status", "<u8"), ("program", "S16")])

_NAME_LENGTH = 64

FACTS = np.dtype(
    {
        "names": ["name", "run", "communication", "end"],
        "formats": [f"S{_NAME_LENGTH}", RUN_FACTS, COMMUNICATION_FACTS, END_FACTS],
        "offsets": [0, 0, 0, 0],
        "itemsize": _NAME_LENGTH,
    }
)
"""What an event has besides, by its interval. Of the event with the edges of a run's parts, `name` has the edges."""

EVENT = np.dtype(
    [
        ("begin", "<u8"),
        ("end", "<u8"),
        ("row", "<u4"),
        ("generation", "<u4"),
        ("pid", "<u4"),
        ("tid", "<u4"),
        ("interval", "<u2"),
        ("phase", "<u2"),
        ("operation", "<u2"),
        ("is_abandoned", "<u2"),
        ("flags", "<u4"),
        ("sequence", "<u4"),
        ("facts", FACTS),
        ("snapshot_begin", SNAPSHOT),
        ("snapshot_end", SNAPSHOT),
    ]
)

WORKER = np.dtype([("row", "<u4"), ("generation", "<u4"), ("pid", "<u4"), ("reserved", "<u4")])

GIL = np.dtype([("begin", "<u8"), ("end", "<u8")])


class Code(IntEnum):
    """The owner of executable memory."""

    NONE = 0
    OPERATOR = 1
    """PyTorch and the libraries that its operators call."""
    PYTHON = 2
    """The interpreter."""
    NATIVE = 3
    """Another library."""
    SHARED = 4
    """The C library and the like: its time belongs to the function that called it."""


CODE_RANGES = 256
CODE_RANGE = np.dtype([("begin", "<u8"), ("size", "<u4"), ("code", "<u4")])
EXECUTABLE = np.dtype([("count", "<u4"), ("reserved", "<u4"), ("ranges", CODE_RANGE, (CODE_RANGES,))])


class FramePosition(IntEnum):
    """What Python frames show: a position in the loop, or what a wait is for."""

    ELSE = 0
    CHECKPOINT = 1
    COMPILE = 2
    ENVIRONMENT = 3
    GIVING = 4
    TAKING = 5
    SWITCHING = 6


SAMPLE_KEY = np.dtype(
    [
        ("row", "<u4"),
        ("generation", "<u4"),
        ("tid", "<u4"),
        ("place", "<u2"),
        ("code", "u1"),
        ("state", "u1"),
        ("stack", "<u8"),
        ("worker", "<u4"),
        ("reserved", "<u4"),
    ]
)
CODE_KEY = np.dtype([("code", "<u8"), ("tgid", "<u4"), ("reserved", "<u4")])
PYTHON = np.dtype(
    [
        ("thread_id", "<u4"),
        ("frame", "<u4"),
        ("is_indirect", "<u4"),
        ("frame_in_place", "<u4"),
        ("previous", "<u4"),
        ("code", "<u4"),
        ("instruction", "<u4"),
        ("is_number", "<u4"),
        ("owner", "<u4"),
        ("shim", "<u4"),
        ("thread_register", "<u4"),
    ]
)
PYTHON_THREAD = np.dtype([("id", "<u8"), ("tgid", "<u4"), ("reserved", "<u4")])
PLACES = 32
PLACE = np.dtype([("code", "<u8"), ("instruction", "<u8")])
STACK = np.dtype(
    [
        ("depth", "<u4"),
        ("is_cut", "<u4"),
        ("is_broken", "<u4"),
        ("position", "<u2"),
        ("roles", "<u2"),
        ("places", PLACE, (PLACES,)),
    ]
)

SAMPLE_COUNT = np.dtype([("count", "<u8"), ("ns", "<u8"), ("lasted", "<u8")])


class ThreadState(IntEnum):
    """The state of a thread that makes marks or calls CUDA or NCCL. bpf/snapshot.bpf.h explains each."""

    ON_CPU = 0
    CPU_WAIT = 1
    GIL = 2
    FILE = 3
    SOCKET = 4
    PIPE = 5
    LOCK = 6
    CHILD = 7
    TIMER = 8
    FAULT = 9
    SWAP = 10
    GPU_WAIT = 11
    LAUNCH_BLOCKED = 12
    COPY = 13
    COLLECTIVE = 14
    UNKNOWN = 15
    CALLING = 16
    LAUNCHING = 17
    SETTLING = 18
    POLLING = 19
    FAULTING = 20


THREAD_TIMES = np.dtype(
    [
        ("since", "<u8"),
        ("row", "<u4"),
        ("generation", "<u4"),
        ("tid", "<u4"),
        ("state", "<u4"),
        ("updates", "<u4"),
        ("has_ended", "<u2"),
        ("has_called", "<u2"),
        ("times", "<u8", (STATES + 8,)),
    ]
)

PENDING_COLLECTIVES = 64


class CollectiveState(IntEnum):
    """The state of a collective of NCCL."""

    SETTLED = 0
    GROUPED = 1
    ENQUEUED = 2


COLLECTIVE = np.dtype(
    [
        ("begin", "<u8"),
        ("end", "<u8"),
        ("bytes", "<u8"),
        ("communicator", "<u8"),
        ("generation", "<u4"),
        ("state", "<u4"),
        ("tid", "<u4"),
        ("flags", "<u4"),
        ("phase", "<u4"),
        ("sequence", "<u4"),
    ]
)
COMMUNICATOR = np.dtype(
    [("rank", "<i4"), ("size", "<u4"), ("id", "<u8"), ("is_counted", "<u4"), ("collectives", "<u4")]
)
OPEN_WORK = np.dtype(
    [
        ("begin", "<u8"),
        ("sequence", "<u8"),
        ("tid", "<u4"),
        ("operation", "<u4"),
        ("ranks", "<u4"),
        ("reserved", "<u4"),
    ]
)

STRUCTS = {
    "other_launches": OTHER_LAUNCHES,
    "process": PROCESS,
    "slot": SLOT,
    "memory": MEMORY,
    "error": ERROR,
    "address": ADDRESS,
    "snapshot": SNAPSHOT,
    "event": EVENT,
    "facts": FACTS,
    "run_facts": RUN_FACTS,
    "communication_facts": COMMUNICATION_FACTS,
    "end_facts": END_FACTS,
    "worker": WORKER,
    "gil": GIL,
    "code_range": CODE_RANGE,
    "executable": EXECUTABLE,
    "sample_key": SAMPLE_KEY,
    "sample_count": SAMPLE_COUNT,
    "code_key": CODE_KEY,
    "python": PYTHON,
    "python_thread": PYTHON_THREAD,
    "place": PLACE,
    "stack": STACK,
    "thread_times": THREAD_TIMES,
    "open_work": OPEN_WORK,
    "collective": COLLECTIVE,
    "communicator": COMMUNICATOR,
}
"""The types by the names of their C structs and unions."""

COUNTERS_PER_ELEMENT = 2

SETTINGS = struct.Struct("<QQIIQQQQQ")
NUMBER = struct.Struct("<I")
"""A row, a slot or a process id as a key or value of a map."""
COUNT = struct.Struct("<Q")
