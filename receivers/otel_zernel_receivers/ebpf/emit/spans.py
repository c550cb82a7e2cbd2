"""Events as spans; docs/spans.md is the contract.

Training jobs make thousands a second, so only what differs is encoded for each. Field numbers are those of
opentelemetry/proto/trace/v1/trace.proto.
"""

import os
import struct
import time
from collections import defaultdict
from dataclasses import dataclass, field
from functools import lru_cache
from itertools import starmap
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray
from opentelemetry.proto.common.v1.common_pb2 import InstrumentationScope
from opentelemetry.proto.trace.v1.trace_pb2 import Span, Status

from otel_zernel import __version__
from otel_zernel.batch import Batch
from otel_zernel.otlp.points import LARGEST_INTEGER, delimited, encode_resource, key_values
from otel_zernel_receivers.ebpf.kernel.kernel_structs import Ending, Interval
from otel_zernel_receivers.ebpf.probes.catalogue import COLLECTIVES, Phase, function_of
from otel_zernel_receivers.ebpf.processes.identities import Identities
from otel_zernel_receivers.ebpf.tables.process_table import Process

_SCOPE = InstrumentationScope(name="otel_zernel_receivers.ebpf", version=__version__).SerializeToString()
_SPAN_HEAD = struct.Struct("<BB16sBB8sBQBQ")  # trace id (1), span id (2), start (7) and end (8) as fixed64


def monotonic_to_unix_ns() -> int:
    """What to add to CLOCK_MONOTONIC to get the time since 1970, ns."""
    before = time.monotonic_ns()
    now = time.time_ns()
    return now - (before + time.monotonic_ns()) // 2


class What(NamedTuple):
    """What events of one kind have in common: fields of `layout.EVENT`."""

    name: bytes
    tid: int
    interval: int
    phase: int
    operation: int
    is_abandoned: int
    flags: int
    rank: int
    bytes: int
    communicator: int
    communicator_size: int


@dataclass
class SpanMaker:
    """Makes spans of events."""

    identities: Identities
    offset_ns: int = field(default_factory=monotonic_to_unix_ns)

    def batch(self, events: NDArray[Any]) -> Batch:
        """The events, records of `layout.EVENT`, as spans, with a resource for each process."""
        by_process: defaultdict[Process, list[bytes]] = defaultdict(list)
        begins, ends = ((events[time] + np.uint64(self.offset_ns)).tolist() for time in ("begin", "end"))
        processes = starmap(Process, events[["row", "generation", "pid"]].tolist())
        kinds = map(What._make, events[list(What._fields)].tolist())
        for process, what, begin, end in zip(processes, kinds, begins, ends, strict=True):
            if what.interval == Interval.COMMUNICATOR:
                self.identities.joined(process, what.rank, what.communicator_size)
            elif self.identities.wants(process):
                by_process[process].append(_encode_span(what, begin, end))
        encoded = b"".join(starmap(self._encode_resource, by_process.items()))
        return Batch.encoded(spans=encoded, span_count=sum(map(len, by_process.values())))

    def _encode_resource(self, process: Process, spans: list[bytes]) -> bytes:
        resource = delimited(1, encode_resource(self.identities.of(process)))
        return delimited(1, resource + delimited(2, delimited(1, _SCOPE) + b"".join(spans)))


def _encode_span(what: What, begin_ns: int, end_ns: int) -> bytes:
    head = _SPAN_HEAD.pack(0x0A, 16, os.urandom(16), 0x12, 8, os.urandom(8), 0x39, begin_ns, 0x41, end_ns)
    return delimited(2, head + _encode_common(what))


@lru_cache(maxsize=2048)
def _encode_common(what: What) -> bytes:
    """Of a span, what does not change from one event to the next: most of it, and of the work."""
    interval = Interval(what.interval)
    attributes: dict[str, str | int] = {
        "thread.id": what.tid,
        "zernel.phase": Phase(what.phase).name.lower(),
        "zernel.interval": interval.name.lower(),
    }
    if interval is Interval.COLLECTIVE:
        attributes.update(_collective(what))
    if interval is Interval.PROCESS:
        attributes.update(_ending(what))
    common = Span(
        name=_name(interval, what),
        kind=Span.SPAN_KIND_INTERNAL,
        attributes=key_values(attributes),
        status=Status(code=Status.STATUS_CODE_ERROR) if _has_failed(interval, what) else None,
    )
    return common.SerializeToString()


def _collective(what: What) -> dict[str, str | int]:
    operation, timing = COLLECTIVES[what.operation]
    told: dict[str, str | int] = {
        "zernel.nccl.operation": operation,
        "zernel.timing.source": timing,
        "zernel.nccl.bytes": min(what.bytes, LARGEST_INTEGER),
        "zernel.nccl.communicator": f"{what.communicator:#x}",
    }
    if what.rank >= 0:
        told["zernel.rank"] = what.rank
    if what.communicator_size:
        told["zernel.world_size"] = what.communicator_size
    return told


def _ending(what: What) -> dict[str, str | int]:
    if what.operation == Ending.EXECED:
        return {"zernel.process.end": "exec", "zernel.process.exec": what.name.decode(errors="replace")}
    if os.WIFSIGNALED(what.bytes):
        return {"zernel.process.end": "signal", "zernel.process.signal": os.WTERMSIG(what.bytes)}
    return {"zernel.process.end": "exit", "process.exit.code": os.WEXITSTATUS(what.bytes)}


def _has_failed(interval: Interval, what: What) -> bool:
    """Whether a scope was left open, or a process killed or its exit code is not 0."""
    return bool(what.is_abandoned) or (interval is Interval.PROCESS and what.bytes != 0)


def _name(interval: Interval, what: What) -> str:
    if interval in (Interval.BACKWARD, Interval.PROCESS):
        return interval.name.lower()
    if interval is Interval.COLLECTIVE:
        return COLLECTIVES[what.operation][0]
    return what.name.decode(errors="replace") or function_of(what.flags)
