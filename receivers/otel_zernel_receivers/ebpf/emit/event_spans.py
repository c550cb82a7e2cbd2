"""What an event of the kernel is: its span, without times and ids."""

import os
import struct
from hashlib import blake2b
from typing import Any, NamedTuple

from otel_zernel.otlp.points import LARGEST_INTEGER
from otel_zernel_libraries.training import interval_spans as spans
from otel_zernel_receivers.ebpf.emit.ends import signal_name
from otel_zernel_receivers.ebpf.kernel.kernel_structs import (
    COMMUNICATION_FACTS,
    END_FACTS,
    FACTS,
    OUT_OF_MEMORY,
    RUN_FACTS,
    Interval,
    RunEnding,
    RunKind,
)
from otel_zernel_receivers.ebpf.kernel.kernel_structs import Ending as KernelEnding
from otel_zernel_receivers.ebpf.probes.calls import COLLECTIVES, Phase
from otel_zernel_receivers.ebpf.probes.catalogue import function_of

_RUN = struct.Struct("<QIIIHH")
_COMMUNICATION = struct.Struct("<QQQiI")
_END = struct.Struct("<Q16s")
_EDGES = struct.Struct("<32H")
assert (_RUN.size, _COMMUNICATION.size, _END.size) == (  # noqa: S101  # a mistake in this file
    RUN_FACTS.itemsize,
    COMMUNICATION_FACTS.itemsize,
    END_FACTS.itemsize,
)
_RUN_KINDS: dict[RunKind, spans.OperatorKind] = {
    RunKind.OF_MODEL: "model",
    RunKind.OF_UPDATE: "update",
    RunKind.OF_LOSS: "loss",
    RunKind.OF_BATCH: "batch",
    RunKind.OF_NOISE: "noise",
    RunKind.OF_IN_PLACE: "in_place",
}
_ENDINGS = {RunEnding.AT_OPERATOR: "operator", RunEnding.AT_REGION: "region", RunEnding.AT_NEXT_RUN: "next"}
_FIXED_ID = 0x0280028002800280.to_bytes(8, "little")
"""NCCL's unique id begins with this constant (`NCCL_MAGIC`) if a job sets NCCL_COMM_ID, else with random bytes."""


class EventFields(NamedTuple):
    """The fields of `kernel_structs.EVENT` that many events have in common. `facts` comes last."""

    tid: int
    interval: int
    phase: int
    operation: int
    is_abandoned: int
    flags: int
    facts: bytes
    """`kernel_structs.FACTS` without the zero bytes at its end."""


def span_of(fields: EventFields) -> spans.ThreadSpan | spans.CollectiveSpan | spans.ProcessSpan | spans.WorkerSpan:
    """The span of an event that is no run of operators."""
    match Interval(fields.interval):
        case Interval.COLLECTIVE:
            return _collective(fields)
        case Interval.PROCESS:
            return spans.ProcessSpan(fields.tid, 0, 0, _ending(fields), _phase_of(fields))
        case Interval.WORKER:
            return spans.WorkerSpan(fields.tid, 0, 0, _ending(fields), _phase_of(fields))
        case interval:
            kind, text = interval.name.lower(), fields.facts.decode(errors="replace")
            is_user = interval is Interval.USER
            name = kind if is_user or interval is Interval.BACKWARD else text or function_of(fields.flags)
            return spans.ThreadSpan(kind, name, fields.tid, 0, 0, _phase_of(fields), scope_name=text if is_user else "")


def run_of(fields: EventFields, edges: bytes | None) -> spans.OperatorsSpan:
    """The span of a run of operators. `edges`: the beginnings and ends of its parts, from an event of its own."""
    covered, count, parts, ending, is_without_grad, kind = _unpacked(_RUN, fields.facts)
    return spans.OperatorsSpan(
        thread=fields.tid,
        start_ns=0,
        end_ns=0,
        phase=_phase_of(fields),
        operators=count,
        operator_kind=_RUN_KINDS[RunKind(kind)],
        ending=_ENDINGS[RunEnding(ending)],
        grad=not is_without_grad,
        parts=max(parts, 1),
        covered_ns=covered if parts > 1 else 0,
        edges_us=_unpacked(_EDGES, edges)[: 2 * parts] if edges and parts > 1 else (),
    )


def device_span_of(fields: EventFields) -> spans.DeviceSpan:
    """The span of the work of a device."""
    return spans.DeviceSpan(fields.tid, 0, 0, fields.facts.ljust(FACTS.itemsize, b"\0"), _phase_of(fields))


def rank_of(fields: EventFields) -> tuple[int, int]:
    """The rank in a new communicator, and the number of its ranks."""
    *_, rank, ranks = _unpacked(_COMMUNICATION, fields.facts)
    return rank, ranks


def status_of(fields: EventFields) -> int:
    """The status of an ended process, as wait(2) gives it."""
    status, _ = _unpacked(_END, fields.facts)
    return int(status)


def _collective(fields: EventFields) -> spans.CollectiveSpan:
    operation, timing = COLLECTIVES[fields.operation]
    number, communicator, size, rank, ranks = _unpacked(_COMMUNICATION, fields.facts)
    return spans.CollectiveSpan(
        operation=operation,
        thread=fields.tid,
        start_ns=0,
        end_ns=0,
        phase=_phase_of(fields),
        timing_source=timing,
        bytes=min(size, LARGEST_INTEGER),
        communicator=f"{communicator:#x}",
        shared_communicator=communicator_name(number),
        rank=rank if rank >= 0 else None,
        world_size=ranks,
    )


def communicator_name(unique_id: int) -> str:
    """The name of a communicator on all ranks: a hash of the first 8 bytes of NCCL's unique id. Empty without one.

    The id itself admits a process to the communicator.
    """
    content = unique_id.to_bytes(8, "little")
    return blake2b(content, digest_size=8).hexdigest() if unique_id and content != _FIXED_ID else ""


def _ending(fields: EventFields) -> spans.Ending:
    status, program = _unpacked(_END, fields.facts)
    if fields.operation == KernelEnding.EXECED:
        return spans.Ending("exec", program=program.rstrip(b"\0").decode(errors="replace"))
    if os.WIFSIGNALED(status):
        number = os.WTERMSIG(status)
        is_out_of_memory = bool(fields.flags & OUT_OF_MEMORY)
        return spans.Ending("signal", signal=number, signal_name=signal_name(number), is_out_of_memory=is_out_of_memory)
    return spans.Ending("exit", exit_code=os.WEXITSTATUS(status))


def _phase_of(fields: EventFields) -> str:
    return Phase(fields.phase).name.lower()


def _unpacked(layout: struct.Struct, facts: bytes) -> tuple[Any, ...]:
    """numpy drops the zero bytes at the end of the facts."""
    return layout.unpack_from(facts.ljust(layout.size, b"\0"))
