"""Events of the kernel as encoded spans; docs/development/spans.md is the contract.

Training jobs make thousands of events a second. Therefore only the parts that differ from span to span are encoded each
time. Field numbers are those of opentelemetry/proto/trace/v1/trace.proto.
"""

import os
import struct
import time
from collections import defaultdict
from collections.abc import Collection, Iterable
from dataclasses import dataclass, field
from functools import lru_cache
from hashlib import blake2b
from typing import Any

import numpy as np
from numpy.typing import NDArray
from opentelemetry.proto.common.v1.common_pb2 import AnyValue, InstrumentationScope, KeyValue
from opentelemetry.proto.trace.v1.trace_pb2 import Status

from otel_zernel import __version__
from otel_zernel.batch import Batch
from otel_zernel.otlp.points import encode_attributes, encode_resource
from otel_zernel.protobuf import delimited
from otel_zernel_libraries.training import semconv
from otel_zernel_libraries.training.interval_spans import SkippedSpan
from otel_zernel_receivers.ebpf.budget.overhead import Group
from otel_zernel_receivers.ebpf.budget.step_sample import Skipped
from otel_zernel_receivers.ebpf.emit.event_spans import (
    EventFields,
    device_span_of,
    rank_of,
    run_of,
    span_of,
    status_of,
)
from otel_zernel_receivers.ebpf.kernel.kernel_structs import SNAPSHOT, Interval, RunKind
from otel_zernel_receivers.ebpf.processes.identities import Identities
from otel_zernel_receivers.ebpf.tables.process_table import WatchedProcess

_SCOPE = InstrumentationScope(name="otel_zernel_receivers.ebpf", version=__version__).SerializeToString()
_WINDOW_NS = 60_000_000_000
"""The spans of a process that begin in one window are one trace."""
_EARLIEST = np.uint64(10**18)
"""ns. CUPTI's clock is Unix time or CLOCK_MONOTONIC. Times before this one, of 2001, are those of the second."""
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


@dataclass
class SpanEncoder:
    """Encodes events as spans."""

    identities: Identities
    offset_ns: int = field(default_factory=monotonic_to_unix_ns)
    _scopes: dict[WatchedProcess, set[bytes]] = field(default_factory=dict)
    """The names of each process's own scopes."""

    def batch(self, events: NDArray[Any], incomplete: Collection[Group] = (), skipped: Iterable[Skipped] = ()) -> Batch:
        """The spans of `events` (records of `kernel_structs.EVENT`) and of steps that were left out, with one resource
        for each process.

        Runs of operators of the groups `incomplete` are left out: they are not complete if the operators are sampled.
        """
        if Group.OPERATORS in incomplete:
            events = events[events["interval"] != Interval.OPERATORS]
        elif Group.IN_PLACE in incomplete:
            events = events[(events["interval"] != Interval.OPERATORS) | ~_is_in_place(events)]
        edges = _edges_of_runs(events)
        if edges:
            events = events[(events["interval"] != Interval.OPERATORS) | (events["operation"] == 0)]
        by_process: defaultdict[WatchedProcess, list[bytes]] = defaultdict(list)
        traces: dict[tuple[int, int], bytes] = {}
        """By pid and window."""
        offsets = np.where(events["begin"] < _EARLIEST, np.uint64(self.offset_ns), np.uint64(0))
        begins, ends = ((events[time] + offsets).tolist() for time in ("begin", "end"))
        processes = (WatchedProcess(*event) for event in events[["row", "generation", "pid"]].tolist())
        columns = (events[name].tolist() for name in EventFields._fields[:-1])
        kinds = map(EventFields, *columns, events["facts"]["name"].tolist())
        self._forget_ended()
        sequences, snapshots = events["sequence"].tolist(), _snapshots_of(events)
        for process, fields, begin, end, sequence, snapshot in zip(
            processes, kinds, begins, ends, sequences, snapshots, strict=True
        ):
            if fields.interval == Interval.COMMUNICATOR:
                self.identities.set_rank(process, *rank_of(fields))
            elif self.identities.is_selected(process) and not _is_usual(fields):
                if fields.interval == Interval.OPERATORS:
                    edges_of_run = edges.get((fields.tid, begin - self.offset_ns))
                    common = run_of(fields, edges_of_run).to_span().SerializeToString()
                elif fields.interval == Interval.DEVICE:
                    common = device_span_of(fields).to_span().SerializeToString()
                else:
                    common = _encode_common(self._bounded(process, fields))
                common += snapshot + _encode_number(fields.interval, sequence)
                key = process.pid, begin // _WINDOW_NS
                if key not in traces:
                    traces[key] = _trace_id(*self.identities.origin(process), key[1])
                by_process[process].append(_encode_span(traces[key], common, begin, end))
        for skip in skipped:
            if self.identities.is_selected(skip.process):
                by_process[skip.process].append(self._encode_skipped(skip))
        encoded = b"".join(self._encode_resource(*item) for item in by_process.items())
        return Batch.encoded("traces", encoded, sum(map(len, by_process.values())))

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

    def _encode_skipped(self, skipped: Skipped) -> bytes:
        begin, end = skipped.begin + self.offset_ns, skipped.end + self.offset_ns
        trace = _trace_id(*self.identities.origin(skipped.process), begin // _WINDOW_NS)
        common = SkippedSpan(skipped.thread, 0, 0, skipped.steps).to_span().SerializeToString()
        return _encode_span(trace, common, begin, end)


def _is_in_place(events: NDArray[Any]) -> NDArray[np.bool_]:
    """For events of runs: whether they are runs of operators on one tensor, which have no parts."""
    is_in_place = (events["facts"]["run"]["kind"] == RunKind.OF_IN_PLACE) & (events["operation"] == 0)
    return np.asarray(is_in_place, np.bool_)


def _edges_of_runs(events: NDArray[Any]) -> dict[tuple[int, int], bytes]:
    """The events with the edges of parts: their content by the thread and the beginning (ns) of the run."""
    event = events[(events["interval"] == Interval.OPERATORS) & (events["operation"] == 1)]
    keys = zip(event["tid"].tolist(), event["begin"].tolist(), strict=True)
    return dict(zip(keys, event["facts"]["name"].tolist(), strict=True))


def _trace_id(host: str, pid: int, created: str, window: int) -> bytes:
    """The same for all spans of a process in one window, also after a restart of the collector."""
    return blake2b(f"{host} {pid} {created} {window}".encode(), digest_size=16).digest()


def _is_usual(fields: EventFields) -> bool:
    """Whether it is the usual end of a worker, which only a metric counts."""
    return fields.interval == Interval.WORKER and not status_of(fields)


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


@lru_cache(maxsize=2048)
def _encode_common(fields: EventFields) -> bytes:
    """The part of a span that many events share: everything but its ids and times."""
    span = span_of(fields).to_span()
    if fields.is_abandoned:
        span.status.code = Status.STATUS_CODE_ERROR
    return span.SerializeToString()
