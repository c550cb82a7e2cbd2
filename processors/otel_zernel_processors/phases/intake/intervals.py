"""Reads the intervals of threads from spans in the form of docs/spans.md."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Literal, NamedTuple, get_args

from opentelemetry.proto.trace.v1.trace_pb2 import Span

IntervalKind = Literal["data_loading", "optimizer", "zero_grad", "backward", "ddp", "user", "sync", "collective"]
"""The values of `zernel.interval` that make up steps; docs/spans.md defines them."""
KINDS = frozenset(get_args(IntervalKind))

WORK = frozenset({"backward", "optimizer"})
"""The kinds that occur only in a training step."""

_PROCESS = "process"
"""The value of `zernel.interval` for the span that covers a whole process."""
_LIVES = frozenset({_PROCESS, "worker"})
"""The values for spans of a whole process or worker. They pass, so that backends show how each one ended."""
_TRAINING = frozenset({"data_loading", "optimizer", "backward", "collective"})
"""Kinds that only processes that train have."""
_ENDS = frozenset({"exit", "signal"})
"""The values of `zernel.process.end` after which the process is gone. After `exec` it runs another program."""
_KEPT = frozenset({"collective", "sync", "data_loading", "optimizer"})
"""Kinds whose spans are kept: for the traces, and for the numbers of collectives."""
_WITH_MORE = frozenset({"collective", _PROCESS})
"""Kinds for which attributes other than `zernel.interval` and `thread.id` matter."""


class ThreadInterval(NamedTuple):
    """One interval of one thread. Times are ns since 1970. Intervals sort by their end: they become known in that
    order."""

    end: int
    start: int
    thread: int
    kind: str
    name: str
    in_flight: bool = False
    """For a collective: True if the interval lasts until the collective completed, False if it covers only the call."""
    span: Span | None = None
    """The span itself, for the kinds whose attributes matter later: collectives, syncs, loads and optimizers."""

    @property
    def waits_for_collective(self) -> bool:
        """Whether the thread only waits for other ranks.

        DDP's reducer waits for its buckets in `finalize_backward`.
        """
        return self.name.startswith("c10d::") if self.kind == "sync" else self.name.endswith("::finalize_backward")


@dataclass(slots=True)
class SpanInput:
    """Spans of one process, sorted by their use."""

    intervals: list[ThreadInterval] = field(default_factory=list)
    process_end: int = 0
    """When (ns since 1970) the process exited or was killed; 0 if no span reports it."""
    invalid: int = 0
    """Number of spans with an unknown `zernel.interval` or impossible times."""
    count: int = 0
    """Number of spans with the attribute `zernel.interval`."""
    others: list[Span] = field(default_factory=list)
    """The spans that pass: those without it, and the ends of processes and workers."""

    @property
    def trains(self) -> bool:
        """Whether the spans show that the process loads data or trains."""
        return any(one.kind in _TRAINING for one in self.intervals)


def read_spans(spans: Sequence[Span]) -> SpanInput:
    """Reads the spans of one resource and scope."""
    read = SpanInput()
    for span in spans:
        kind, thread, source, end = _attributes_of(span)
        if kind is None:
            read.others.append(span)
        elif kind in _LIVES:
            read.count += 1
            read.others.append(span)
            if kind == _PROCESS and end in _ENDS:
                read.process_end = max(read.process_end, span.end_time_unix_nano)
        elif interval := _interval(span, kind, thread, source):
            read.intervals.append(interval)
        else:
            read.invalid += 1
    read.count += len(spans) - len(read.others)
    return read


def interval_of(span: Span) -> ThreadInterval | None:
    """The interval of a span; None if its kind is unknown or its times are impossible."""
    kind, thread, source, _ = _attributes_of(span)
    return _interval(span, kind or "", thread, source)


def _attributes_of(span: Span) -> tuple[str | None, int, str, str]:
    """`zernel.interval` (None if absent), `thread.id`, `zernel.timing.source` and `zernel.process.end`."""
    kind, thread, source, end = None, 0, "", ""
    for attribute in span.attributes:
        key = attribute.key  # reading a field of a message dominates the cost of this function
        if key == "zernel.interval":
            kind = attribute.value.string_value
            if thread and kind not in _WITH_MORE:
                break
        elif key == "thread.id":
            thread = attribute.value.int_value
            if kind and kind not in _WITH_MORE:
                break
        elif key == "zernel.timing.source":
            source = attribute.value.string_value
        elif key == "zernel.process.end":
            end = attribute.value.string_value
    return kind, thread, source, end


def _copy_of(span: Span) -> Span:
    """A copy that outlives the batch of the span, whose last holder may edit it."""
    copy = Span()
    copy.CopyFrom(span)
    return copy


def _interval(span: Span, kind: str, thread: int, source: str) -> ThreadInterval | None:
    start, end = span.start_time_unix_nano, span.end_time_unix_nano
    if kind not in KINDS or not 0 < start <= end:
        return None
    kept = _copy_of(span) if kind in _KEPT else None
    return ThreadInterval(end, start, thread, kind, span.name, kind == "collective" and source != "host_enqueue", kept)
