"""The BPF side's numbers and structs as numpy sees them: bpf/hdr.bpf.h, process.bpf.h, series.bpf.h, losses.bpf.h,
errors.bpf.h, events.bpf.h, lifetime.bpf.c, address.bpf.h, cuda.bpf.c, nccl.bpf.c, settings.bpf.h.

A test compares every field with the types that the objects carry.
"""

import struct
from enum import IntEnum

import numpy as np

HIGHEST_NS = 3_600_000_000_000
"""One hour; what takes longer counts as one hour."""
OPERATIONS = 64
PHASES = 8
UNUSED = 0
"""The state of a process's slot for a series that it does not have; else the slot's number + 1."""


class State(IntEnum):
    """Of a row of the process table."""

    FREE = 0
    LIVE = 1
    IGNORED = 2
    ENDED = 3


class Interval(IntEnum):
    """What an event is."""

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


class Ending(IntEnum):
    """How a process ended; the operation of an event that tells of it."""

    EXITED = 0
    EXECED = 1
    """It has become another program."""


class Loss(IntEnum):
    """Why something could not be counted."""

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
        ("world_size", "<u4"),
        ("collectives", "<u4"),
        ("collectives_settled", "<u4"),
        ("reducer_flags", "<u4"),
        ("reducer_since", "<u8"),
        ("hits", "<u8"),
        ("off_cpu", "<u8"),
        ("io_wait", "<u8"),
        ("last_burst", "<u8"),
        ("bursts", "<u8"),
        ("reads", "<u8"),
        ("bytes_read", "<u8"),
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
        ("rank", "<i4"),
        ("bytes", "<u8"),
        ("communicator", "<u8"),
        ("communicator_size", "<u4"),
        ("reserved", "<u4"),
        ("name", "S64"),
    ]
)

PENDING_COLLECTIVES = 64

STRUCTS = {"process": PROCESS, "slot": SLOT, "memory": MEMORY, "error": ERROR, "address": ADDRESS, "event": EVENT}
"""By the names in C."""

COUNTERS_PER_ELEMENT = 2

SETTINGS = struct.Struct("<QQIIQ")
NUMBER = struct.Struct("<I")
"""Rows, slots and process ids as keys and values of maps."""
COUNT = struct.Struct("<Q")
