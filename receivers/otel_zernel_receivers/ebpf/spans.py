"""Events as spans; docs/spans.md is the contract."""

import os
import time
from collections import defaultdict
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray
from opentelemetry.proto.common.v1.common_pb2 import InstrumentationScope
from opentelemetry.proto.resource.v1.resource_pb2 import Resource
from opentelemetry.proto.trace.v1.trace_pb2 import ResourceSpans, ScopeSpans, Span, Status, TracesData

from otel_zernel import __version__
from otel_zernel.points import key_values
from otel_zernel_receivers.ebpf.identities import Identities
from otel_zernel_receivers.ebpf.layout import Interval
from otel_zernel_receivers.ebpf.probes import COLLECTIVES, Phase, function_of
from otel_zernel_receivers.ebpf.rows import Process

SCOPE = InstrumentationScope(name="otel_zernel_receivers.ebpf", version=__version__)


def monotonic_to_unix_ns() -> int:
    """What to add to CLOCK_MONOTONIC to get the time since 1970, ns."""
    before = time.monotonic_ns()
    now = time.time_ns()
    return now - (before + time.monotonic_ns()) // 2


@dataclass
class SpanMaker:
    """Makes spans of events."""

    identities: Identities
    offset_ns: int = field(default_factory=monotonic_to_unix_ns)

    def spans(self, events: NDArray[Any]) -> TracesData:
        """The events, records of `layout.EVENT`, as spans with a resource for each process."""
        by_process: defaultdict[Process, list[Span]] = defaultdict(list)
        for event in events:
            process = Process(int(event["row"]), int(event["generation"]), int(event["pid"]))
            if event["interval"] == Interval.COMMUNICATOR:
                self.identities.joined(process, int(event["rank"]), int(event["communicator_size"]))
            elif self.identities.wants(process):
                by_process[process].append(self._span(event))
        return TracesData(resource_spans=self._resources(by_process.items()))

    def _resources(self, spans: Iterable[tuple[Process, list[Span]]]) -> Iterable[ResourceSpans]:
        for process, of_process in spans:
            resource = Resource(attributes=key_values(self.identities.of(process)))
            yield ResourceSpans(resource=resource, scope_spans=[ScopeSpans(scope=SCOPE, spans=of_process)])

    def _span(self, event: np.void) -> Span:
        interval = Interval(event["interval"])
        attributes: dict[str, str | int] = {
            "thread.id": int(event["tid"]),
            "zernel.phase": Phase(event["phase"]).name.lower(),
            "zernel.interval": interval.name.lower(),
        }
        if interval is Interval.COLLECTIVE:
            attributes.update(_collective(event))
        return Span(
            trace_id=os.urandom(16),
            span_id=os.urandom(8),
            name=_name(interval, event),
            kind=Span.SPAN_KIND_INTERNAL,
            start_time_unix_nano=int(event["begin"]) + self.offset_ns,
            end_time_unix_nano=int(event["end"]) + self.offset_ns,
            attributes=key_values(attributes),
            status=Status(code=Status.STATUS_CODE_ERROR) if event["is_abandoned"] else None,
        )


def _collective(event: np.void) -> dict[str, str | int]:
    operation, timing = COLLECTIVES[int(event["operation"])]
    told: dict[str, str | int] = {
        "zernel.nccl.operation": operation,
        "zernel.timing.source": timing,
        "zernel.nccl.bytes": int(event["bytes"]),
        "zernel.nccl.communicator": f"{int(event['communicator']):#x}",
    }
    if event["rank"] >= 0:
        told["zernel.rank"] = int(event["rank"])
    if event["communicator_size"]:
        told["zernel.world_size"] = int(event["communicator_size"])
    return told


def _name(interval: Interval, event: np.void) -> str:
    if interval is Interval.BACKWARD:
        return "backward"
    if interval is Interval.COLLECTIVE:
        return COLLECTIVES[int(event["operation"])][0]
    name: str = event["name"].decode(errors="replace")
    return name or function_of(int(event["flags"]))
