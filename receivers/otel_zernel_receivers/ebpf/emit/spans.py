"""Events of the kernel as spans; docs/spans.md is the contract.

Training jobs make thousands of events a second. Therefore only the parts that differ from span to span are encoded each
time. Field numbers are those of opentelemetry/proto/trace/v1/trace.proto.
"""

import os
import struct
import time
from collections import defaultdict
from dataclasses import dataclass, field
from functools import lru_cache
from hashlib import blake2b
from itertools import starmap
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray
from opentelemetry.proto.common.v1.common_pb2 import AnyValue, InstrumentationScope, KeyValue
from opentelemetry.proto.trace.v1.trace_pb2 import Status

from otel_zernel import __version__
from otel_zernel.batch import Batch
from otel_zernel.otlp.points import LARGEST_INTEGER, encode_attributes, encode_resource
from otel_zernel.protobuf import delimited
from otel_zernel_libraries.training import semconv
from otel_zernel_libraries.training.interval_spans import (
    CollectiveSpan,
    Ending,
    OperatorKind,
    OperatorsSpan,
    ProcessSpan,
    ThreadSpan,
    WorkerSpan,
)
from otel_zernel_receivers.ebpf.emit.ends import signal_name
from otel_zernel_receivers.ebpf.kernel.kernel_structs import (
    COMMUNICATION_FACTS,
    END_FACTS,
    OUT_OF_MEMORY,
    RUN_FACTS,
    SNAPSHOT,
    Interval,
    RunEnding,
    RunKind,
)
from otel_zernel_receivers.ebpf.kernel.kernel_structs import Ending as KernelEnding
from otel_zernel_receivers.ebpf.probes.calls import COLLECTIVES, Phase
from otel_zernel_receivers.ebpf.probes.catalogue import function_of
from otel_zernel_receivers.ebpf.processes.identities import Identities
from otel_zernel_receivers.ebpf.tables.process_table import WatchedProcess

_RUN = struct.Struct("<QIIIHH")
_COMMUNICATION = struct.Struct("<QQQiI")
_END = struct.Struct("<Q16s")
_EDGES = struct.Struct("<32H")
assert (_RUN.size, _COMMUNICATION.size, _END.size) == (  # noqa: S101  # a mistake in this file
    RUN_FACTS.itemsize,
    COMMUNICATION_FACTS.itemsize,
    END_FACTS.itemsize,
)
_RUN_KINDS: dict[RunKind, OperatorKind] = {
    RunKind.OF_MODEL: "model",
    RunKind.OF_UPDATE: "update",
    RunKind.OF_LOSS: "loss",
    RunKind.OF_BATCH: "batch",
    RunKind.OF_NOISE: "noise",
    RunKind.OF_IN_PLACE: "in_place",
}
_ENDINGS = {RunEnding.AT_OPERATOR: "operator", RunEnding.AT_REGION: "region", RunEnding.AT_NEXT_RUN: "next"}


def run_of(facts: bytes, thread: int, phase: str, edges: bytes | None = None) -> OperatorsSpan:
    """The span of a run without its times, from the facts of its event.

    `edges` are the beginnings and ends of the parts, from an event of its own.
    """
    covered, count, parts, ending, is_without_grad, kind = _unpacked(_RUN, facts)
    return OperatorsSpan(
        thread=thread,
        start_ns=0,
        end_ns=0,
        phase=phase,
        operators=count,
        operator_kind=_RUN_KINDS[RunKind(kind)],
        ending=_ENDINGS[RunEnding(ending)],
        grad=not is_without_grad,
        parts=max(parts, 1),
        covered_ns=covered if parts > 1 else 0,
        edges_us=_unpacked(_EDGES, edges)[: 2 * parts] if edges and parts > 1 else (),
    )


def _unpacked(layout: struct.Struct, facts: bytes) -> tuple[Any, ...]:
    """numpy drops the zero bytes at the end of the facts."""
    return layout.unpack_from(facts.ljust(layout.size, b"\0"))


def parts_of_runs(events: NDArray[Any]) -> dict[tuple[int, int], bytes]:
    """The events with the edges of parts: their content by the thread and the beginning (ns) of the run."""
    found = events[(events["interval"] == Interval.OPERATORS) & (events["operation"] == 1)]
    keys = zip(found["tid"].tolist(), found["begin"].tolist(), strict=True)
    return dict(zip(keys, found["facts"]["name"].tolist(), strict=True))


_SCOPE = InstrumentationScope(name="otel_zernel_receivers.ebpf", version=__version__).SerializeToString()
_WINDOW_NS = 60_000_000_000
"""The spans of a process that begin in one window are one trace."""
_MAX_SCOPES = 200
"""Different names of a process's own scopes that are passed on. A program may make up any number of them."""
_OTHER_SCOPES = b"other"
_SPAN_HEAD = struct.Struct("<BB16sBB8sBQBQ")  # trace id (1), span id (2), start (7) and end (8) as fixed64


def monotonic_to_unix_ns() -> int:
    """The offset from CLOCK_MONOTONIC to Unix time, ns."""
    before = time.monotonic_ns()
    now = time.time_ns()
    return now - (before + time.monotonic_ns()) // 2


_NUMBERS: dict[int, str] = {
    Interval.COLLECTIVE: semconv.COLLECTIVE_SEQUENCE,
    Interval.DATA_LOADING: semconv.COLLECTIVE_ISSUED,
    Interval.OPTIMIZER: semconv.COLLECTIVE_ISSUED,
}
"""The intervals whose spans have a number of a collective, and its attribute."""

_SNAPSHOT_BEGIN, _SNAPSHOT_END = (
    delimited(9, KeyValue(key=name, value=AnyValue(bytes_value=bytes(SNAPSHOT.itemsize))).SerializeToString())[
        : -SNAPSHOT.itemsize
    ]
    for name in (semconv.SNAPSHOT_BEGIN, semconv.SNAPSHOT_END)
)
"""The encoded attributes up to their values, which the kernel has written."""

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


@dataclass
class SpanEncoder:
    """Encodes events as spans."""

    identities: Identities
    offset_ns: int = field(default_factory=monotonic_to_unix_ns)
    _scopes: dict[WatchedProcess, set[bytes]] = field(default_factory=dict)
    """The names of each process's own scopes."""

    def batch(self, events: NDArray[Any], *, without_runs: bool = False) -> Batch:
        """The spans of `events` (records of `kernel_structs.EVENT`), with one resource for each process.

        `without_runs` leaves out runs of model operators, which are not complete if operators are sampled.
        """
        if without_runs:
            events = events[events["interval"] != Interval.OPERATORS]
        edges = parts_of_runs(events)
        if edges:
            events = events[(events["interval"] != Interval.OPERATORS) | (events["operation"] == 0)]
        by_process: defaultdict[WatchedProcess, list[bytes]] = defaultdict(list)
        traces: dict[tuple[int, int], bytes] = {}
        """By pid and window."""
        begins, ends = ((events[time] + np.uint64(self.offset_ns)).tolist() for time in ("begin", "end"))
        processes = starmap(WatchedProcess, events[["row", "generation", "pid"]].tolist())
        columns = (events[name].tolist() for name in EventFields._fields[:-1])
        kinds = map(EventFields, *columns, events["facts"]["name"].tolist())
        self._forget_ended()
        sequences, snapshots = events["sequence"].tolist(), _snapshots_of(events)
        for process, fields, begin, end, sequence, snapshot in zip(
            processes, kinds, begins, ends, sequences, snapshots, strict=True
        ):
            if fields.interval == Interval.COMMUNICATOR:
                *_, rank, size = _unpacked(_COMMUNICATION, fields.facts)
                self.identities.set_rank(process, rank, size)
            elif self.identities.is_selected(process) and not _is_usual(fields):
                if fields.interval == Interval.OPERATORS:
                    common = self._encode_run(fields, edges.get((fields.tid, begin - self.offset_ns)))
                else:
                    common = _encode_common(self._bounded(process, fields))
                common += snapshot + _encode_number(fields.interval, sequence)
                key = process.pid, begin // _WINDOW_NS
                if key not in traces:
                    traces[key] = _trace_id(*self.identities.origin(process), key[1])
                by_process[process].append(_encode_span(traces[key], common, begin, end))
        encoded = b"".join(starmap(self._encode_resource, by_process.items()))
        return Batch.encoded(spans=encoded, span_count=sum(map(len, by_process.values())))

    def _bounded(self, process: WatchedProcess, fields: EventFields) -> EventFields:
        """The fields with a name that is one of `_MAX_SCOPES`, if it is a scope of the program's own."""
        if fields.interval != Interval.USER:
            return fields
        names = self._scopes.setdefault(process, set())
        if fields.facts not in names and len(names) >= _MAX_SCOPES:
            return fields._replace(facts=_OTHER_SCOPES)
        names.add(fields.facts)
        return fields

    def _forget_ended(self) -> None:
        if len(self._scopes) > _MAX_SCOPES:
            self._scopes = {process: names for process, names in self._scopes.items() if self.identities.knows(process)}

    def _encode_resource(self, process: WatchedProcess, spans: list[bytes]) -> bytes:
        resource = delimited(1, encode_resource(self.identities.attributes_of(process)))
        return delimited(1, resource + delimited(2, delimited(1, _SCOPE) + b"".join(spans)))

    def _encode_run(self, fields: EventFields, edges: bytes | None) -> bytes:
        """Encodes a run of operators, which few other runs equal."""
        return run_of(fields.facts, fields.tid, _phase_of(fields), edges).to_span().SerializeToString()


def _trace_id(host: str, pid: int, created: str, window: int) -> bytes:
    """The same for all spans of a process in one window, also after a restart of the collector."""
    return blake2b(f"{host} {pid} {created} {window}".encode(), digest_size=16).digest()


def _is_usual(fields: EventFields) -> bool:
    """Whether it is the usual end of a worker, which only a metric counts."""
    return fields.interval == Interval.WORKER and not _status_of(fields)


def _status_of(fields: EventFields) -> int:
    status, _ = _unpacked(_END, fields.facts)
    return int(status)


def _snapshots_of(events: NDArray[Any]) -> list[bytes]:
    """The encoded attributes with the snapshots of each event; empty for an event without."""
    begins, ends = (events[name].tobytes() for name in ("snapshot_begin", "snapshot_end"))
    size = SNAPSHOT.itemsize
    return [
        _SNAPSHOT_BEGIN + begins[at : at + size] + _SNAPSHOT_END + ends[at : at + size] if time else b""
        for at, time in zip(range(0, len(begins), size), events["snapshot_end"]["time"].tolist(), strict=True)
    ]


def _encode_span(trace_id: bytes, common: bytes, begin_ns: int, end_ns: int) -> bytes:
    head = _SPAN_HEAD.pack(0x0A, 16, trace_id, 0x12, 8, os.urandom(8), 0x39, begin_ns, 0x41, end_ns)
    return delimited(2, head + common)


def _encode_number(interval: int, sequence: int) -> bytes:
    """The number of a collective. It differs from span to span."""
    name = _NUMBERS.get(interval) if sequence else None
    return encode_attributes({name: sequence}, 9) if name else b""


def _phase_of(fields: EventFields) -> str:
    return Phase(fields.phase).name.lower()


@lru_cache(maxsize=2048)
def _encode_common(fields: EventFields) -> bytes:
    """The part of a span that many events share: everything but its ids and times."""
    span = _span_of(fields).to_span()
    if fields.is_abandoned:
        span.status.code = Status.STATUS_CODE_ERROR
    return span.SerializeToString()


def _span_of(fields: EventFields) -> ThreadSpan | CollectiveSpan | ProcessSpan | WorkerSpan:
    """The span of an event that is no run of operators, without its times."""
    match Interval(fields.interval):
        case Interval.COLLECTIVE:
            return _collective(fields)
        case Interval.PROCESS:
            return ProcessSpan(fields.tid, 0, 0, _ending(fields), _phase_of(fields))
        case Interval.WORKER:
            return WorkerSpan(fields.tid, 0, 0, _ending(fields), _phase_of(fields))
        case interval:
            kind, text = interval.name.lower(), fields.facts.decode(errors="replace")
            is_user = interval is Interval.USER
            name = kind if is_user or interval is Interval.BACKWARD else text or function_of(fields.flags)
            return ThreadSpan(kind, name, fields.tid, 0, 0, _phase_of(fields), scope_name=text if is_user else "")


def _collective(fields: EventFields) -> CollectiveSpan:
    operation, timing = COLLECTIVES[fields.operation]
    number, communicator, size, rank, ranks = _unpacked(_COMMUNICATION, fields.facts)
    shared = number.to_bytes(8, "little")
    return CollectiveSpan(
        operation=operation,
        thread=fields.tid,
        start_ns=0,
        end_ns=0,
        phase=_phase_of(fields),
        timing_source=timing,
        bytes=min(size, LARGEST_INTEGER),
        communicator=f"{communicator:#x}",
        shared_communicator=_communicator_id(shared) if number and shared != _FIXED_ID else "",
        rank=rank if rank >= 0 else None,
        world_size=ranks,
    )


def _communicator_id(unique_id: bytes) -> str:
    """A hash of the first 8 bytes of NCCL's unique id. The id itself admits a process to the communicator."""
    return blake2b(unique_id, digest_size=8).hexdigest()


def _ending(fields: EventFields) -> Ending:
    status, program = _unpacked(_END, fields.facts)
    if fields.operation == KernelEnding.EXECED:
        return Ending("exec", program=program.rstrip(b"\0").decode(errors="replace"))
    if os.WIFSIGNALED(status):
        number = os.WTERMSIG(status)
        is_out_of_memory = bool(fields.flags & OUT_OF_MEMORY)
        return Ending("signal", signal=number, signal_name=signal_name(number), is_out_of_memory=is_out_of_memory)
    return Ending("exit", exit_code=os.WEXITSTATUS(status))
