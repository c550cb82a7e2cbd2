"""Reads the intervals of threads from spans in the form of docs/spans.md."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from typing import Literal, NamedTuple, get_args

from opentelemetry.proto.common.v1.common_pb2 import AnyValue
from opentelemetry.proto.trace.v1.trace_pb2 import Span

IntervalKind = Literal["data_loading", "optimizer", "zero_grad", "backward", "ddp", "user", "sync", "collective"]
"""The values of `zernel.interval` that make up steps, besides `operators`; docs/spans.md defines them."""
RunKind = Literal["forward", "inference", "update"]
"""The kinds of a run of operators (`zernel.interval` is `operators`): with gradients, without them, and an optimizer's
arithmetic without its scope."""
KINDS = frozenset(get_args(IntervalKind))
RUNS = frozenset(get_args(RunKind))

WORK = frozenset({"backward", "optimizer"})
"""The kinds that occur only in a training step."""
UPDATES = frozenset({"optimizer", "update"})
"""The kinds that change the model's weights."""

_PROCESS = "process"
"""The value of `zernel.interval` for the span that covers a whole process."""
_LIVES = frozenset({_PROCESS, "worker"})
"""The values for spans of a whole process or worker. They pass, so that backends show how each one ended."""
_TRAINING = frozenset({"data_loading", "optimizer", "backward", "collective"})
"""Kinds that only processes that train have."""
_ENDS = frozenset({"exit", "signal"})
"""The values of `zernel.process.end` after which the process is gone. After `exec` it runs another program."""
_OPERATORS = "operators"
"""The value of `zernel.interval` for a run of operators."""
_EDGES = 64
"""Edges of parts in one run; more are ignored."""
_KEPT = frozenset({"collective", "sync"})
"""Kinds whose spans are kept: for the traces, and for the numbers of collectives."""
_WITH_MORE = frozenset({"collective", "data_loading", "optimizer", _PROCESS, _OPERATORS})
"""Kinds for which attributes other than `zernel.interval` and `thread.id` matter."""


@dataclass(frozen=True, slots=True)
class Evidence:
    """A thread's doings in a period."""

    blocked_ns: int = 0
    """Time for which it was off the CPU by its own will."""
    faults: int = 0
    """Page faults; 0 if those on files are known."""
    file_faults: int = 0
    """Page faults on files."""
    read: int = 0
    """Bytes read by system calls."""
    copies: int = 0
    """Copies from the host to a device."""


@dataclass(frozen=True, slots=True)
class Operators:
    """The attributes of a run of operators."""

    count: int = 0
    gap: Evidence = Evidence()
    """Before the run, since the thread's previous mark."""
    tail: Evidence = Evidence()
    """After its last operator, until the scope or the pass that ended the run."""
    parts: int = 1
    """The regions without gradients that the run joins."""
    covered_ns: int = 0
    """The time of these regions, if there are several."""
    edges: tuple[int, ...] = ()
    """When each of these regions begins and ends, in ns since the start of the run; empty if unknown."""
    is_open: bool = False
    """Whether its pass goes on after its end, which is the entry of an operator."""


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
    """The span itself, for the kinds whose attributes matter later: collectives and syncs."""
    operators: Operators | None = None
    """For a run of operators: its attributes."""
    issued: int = 0
    """For a load or an optimizer: `zernel.collective.issued`; 0 if unknown."""

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
        kind, thread, source, end, issued = _attributes_of(span)
        if kind is None:
            read.others.append(span)
        elif kind in _LIVES:
            read.count += 1
            read.others.append(span)
            if kind == _PROCESS and end in _ENDS:
                read.process_end = max(read.process_end, span.end_time_unix_nano)
        elif interval := _interval(span, kind, thread, source, issued):
            read.intervals.append(interval)
        else:
            read.invalid += 1
    read.count += len(spans) - len(read.others)
    return read


def _attributes_of(span: Span) -> tuple[str | None, int, str, str, int]:
    """`zernel.interval` (None if absent), `thread.id`, `zernel.timing.source`, `zernel.process.end` and
    `zernel.collective.issued`."""
    kind, thread, source, end, issued = None, 0, "", "", 0
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
        elif key == "zernel.collective.issued":
            issued = attribute.value.int_value
    return kind, thread, source, end, issued


def _copy_of(span: Span) -> Span:
    """A copy that outlives the batch of the span, whose last holder may edit it."""
    copy = Span()
    copy.CopyFrom(span)
    return copy


def _interval(span: Span, kind: str, thread: int, source: str, issued: int) -> ThreadInterval | None:
    start, end = span.start_time_unix_nano, span.end_time_unix_nano
    if not 0 < start <= end:
        return None
    if kind == _OPERATORS:
        return _run(span, start, end, thread)
    if kind not in KINDS:
        return None
    if kind not in _KEPT:
        return ThreadInterval(end, start, thread, kind, span.name, issued=issued)
    in_flight = kind == "collective" and source != "host_enqueue"
    return ThreadInterval(end, start, thread, kind, span.name, in_flight, _copy_of(span))


def _run(span: Span, start: int, end: int, thread: int) -> ThreadInterval:
    """The interval of a run of operators."""
    values = {attribute.key: attribute.value for attribute in span.attributes}
    grad, use, ending = (values.get(f"zernel.{key}") for key in ("grad", "operators.kind", "operators.end"))
    kind: RunKind = "inference" if grad is not None and not grad.bool_value else "forward"
    if use is not None and use.string_value == "update":
        kind = "update"
    operators = Operators(
        count=_number(values, "zernel.operators.count"),
        gap=_evidence(values, "zernel.gap"),
        tail=_evidence(values, "zernel.tail"),
        parts=_number(values, "zernel.operators.parts"),
        covered_ns=_duration(values, "zernel.operators.time"),
        edges=_edges(values["zernel.operators.edges"].string_value) if "zernel.operators.edges" in values else (),
        is_open=kind == "forward" if ending is None else ending.string_value != "region",
    )
    return ThreadInterval(end, start, thread, kind, span.name, operators=operators)


def _edges(text: str) -> tuple[int, ...]:
    """Times in us, separated by spaces, in ns; empty if they are not in order."""
    edges = [int(one) * 1000 for one in text.split(maxsplit=_EDGES) if one.isdecimal()]
    is_valid = len(edges) % 2 == 0 and all(before <= after for before, after in pairwise(edges))
    return tuple(edges) if is_valid else ()


def _evidence(values: Mapping[str, AnyValue], prefix: str) -> Evidence:
    counts = (_number(values, f"{prefix}.{name}") for name in ("faults", "file.faults", "read", "copies"))
    return Evidence(_duration(values, f"{prefix}.blocked"), *counts)


def _number(values: Mapping[str, AnyValue], key: str) -> int:
    return values[key].int_value if key in values else 0


def _duration(values: Mapping[str, AnyValue], key: str) -> int:
    """A duration in ns."""
    return round(values[key].double_value * 1e9) if key in values else 0
