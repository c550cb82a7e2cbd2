"""Reads the intervals of threads from spans in the form of docs/development/spans.md."""

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from sys import intern
from typing import Final, Literal, NamedTuple, get_args

from opentelemetry.proto.trace.v1.trace_pb2 import Span

from otel_zernel_libraries.repeated_fields import keep_only
from otel_zernel_libraries.training import semconv
from otel_zernel_libraries.training.interval_spans import (
    COLLECTIVE,
    NO_EVIDENCE,
    OPERATORS,
    THREAD_KINDS,
    CollectiveSpan,
    DeviceSpan,
    Evidence,
    OperatorsSpan,
    ProcessSpan,
    SkippedSpan,
    Snapshots,
    ThreadSpan,
    WorkerSpan,
    interval_of,
)
from otel_zernel_libraries.training.ledger import packed_snapshots
from otel_zernel_libraries.training.span_attributes import MalformedSpan

RunKind = Literal["forward", "inference", "update"]
"""The kinds of a run of operators (`zernel.interval` is `operators`): with gradients, without them, and an optimizer's
arithmetic without its scope."""
KINDS = THREAD_KINDS | {COLLECTIVE}
"""The values of `zernel.interval` that make up steps, besides `operators`; docs/development/spans.md defines them."""
RUNS = frozenset(get_args(RunKind))

WORK = frozenset({"backward", "optimizer"})
"""The kinds that occur only in a training step."""
UPDATES = frozenset({"optimizer", "update"})
"""The kinds that change the model's weights."""
AVERAGE: Final = "average"
"""The kind of an update of other weights, for example of an exponential average."""
BATCH: Final = "batch"
NOISE: Final = "noise"
"""The kinds of runs of random numbers, with which the program makes a batch. After a loader, noise begins a pass."""
IN_PLACE: Final = "in_place"
"""The kind of a run of operators without gradients. Each operator changes one tensor."""
SKIPPED: Final = SkippedSpan.kind
"""The kind of steps that have no intervals of their own."""

_SNAPSHOTS = (semconv.SNAPSHOT_BEGIN, semconv.SNAPSHOT_END)
_new = tuple.__new__
"""Makes a named tuple. Its own `__new__` takes twice as long."""
_KINDS_OF_RUNS: Final = {"update": "update", "batch": BATCH, "noise": NOISE, "in_place": IN_PLACE}
"""By `zernel.operators.kind`. The others are passes."""
_TRAINING = frozenset({"data_loading", "optimizer", "backward", "collective"})
"""Kinds that only processes that train have."""


@dataclass(frozen=True, slots=True)
class Operators:
    """The attributes of a run of operators."""

    count: int = 0
    gap: Evidence = NO_EVIDENCE
    """Before the run, since the thread's previous mark."""
    tail: Evidence = NO_EVIDENCE
    """After its last operator, until the scope or the pass that ended the run."""
    parts: int = 1
    """The regions without gradients that the run joins."""
    covered_ns: int = 0
    """The time of these regions, if there are several."""
    edges: tuple[int, ...] = ()
    """When each of these regions begins and ends, in ns since the start of the run; empty if unknown."""
    is_loss: bool = False
    """Whether all of them are losses: those of the model before them are not known."""
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
    """The span itself, for the kinds that traces repeat: collectives and syncs."""
    operators: Operators | None = None
    """For a run of operators: its attributes."""
    issued: int = 0
    """For a load or an optimizer: `zernel.collective.issued`; 0 if unknown. Of steps without intervals: their
    number."""
    collective: CollectiveSpan | None = None
    """For a collective: its attributes."""
    snapshots: bytes = b""
    """As `packed_snapshots` returns them; empty if the receiver does not report them."""

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
    devices: list[DeviceSpan] = field(default_factory=list)
    end: ProcessSpan | None = None
    """The span of the process if it exited or was killed."""
    invalid: int = 0
    """Number of spans with an unknown `zernel.interval` or impossible times."""
    malformed: Counter[str] = field(default_factory=Counter)
    """Number of spans that lack an attribute, or have one of another type, by the attribute."""
    count: int = 0
    """Number of spans with the attribute `zernel.interval`."""
    others: list[Span] = field(default_factory=list)
    """The spans that pass: those without it, and the ends of processes and workers."""

    @property
    def trains(self) -> bool:
        """Whether the spans show that the process loads data or trains."""
        return any(interval.kind in _TRAINING for interval in self.intervals)


def read_spans(spans: Sequence[Span]) -> SpanInput:
    """Reads the spans of one resource and scope."""
    read = SpanInput()
    intervals, others, threads = read.intervals, read.others, dict[int, int]()
    for span in spans:
        try:
            interval = interval_of(span)
        except MalformedSpan as error:
            read.malformed[str(error)] += 1
            continue
        if type(interval) is ThreadSpan:
            kind, name, thread, start, end, _, issued, _, _, snapshots = interval
            if 0 < start <= end and kind in THREAD_KINDS:
                # many intervals are held: equal texts and numbers are one object
                kind, name, thread = intern(kind), intern(name), threads.setdefault(thread, thread)
                kept = _copy_of(span, snapshots) if kind == "sync" else None
                intervals.append(
                    _new(ThreadInterval, (end, start, thread, kind, name, False, kept, None, issued, None, snapshots))
                )
            else:
                read.invalid += 1
        elif interval is None:
            others.append(span)
        elif isinstance(interval, ProcessSpan | WorkerSpan):
            read.count += 1
            others.append(span)
            if isinstance(interval, ProcessSpan) and interval.ending.is_over:
                read.end = interval
        elif not 0 < interval.start_ns <= interval.end_ns:
            read.invalid += 1
        elif isinstance(interval, DeviceSpan):
            read.devices.append(interval)
        elif isinstance(interval, SkippedSpan):
            intervals.append(_skipped(interval))
        elif isinstance(interval, CollectiveSpan):
            intervals.append(_collective(interval, span))
        elif isinstance(interval, OperatorsSpan):
            intervals.append(_run(interval))
    read.count += len(spans) - len(others)
    _pack(intervals)
    return read


def _pack(intervals: list[ThreadInterval]) -> None:
    """Packs the snapshots of intervals, of all at once."""
    places = [at for at, interval in enumerate(intervals) if interval.snapshots]
    if places:
        for at, packed in zip(places, packed_snapshots([intervals[at].snapshots for at in places]), strict=True):
            intervals[at] = _new(ThreadInterval, (*intervals[at][:-1], packed))


def _collective(read: CollectiveSpan, span: Span) -> ThreadInterval:
    operation, thread, start, end, timing_source, *_ = read
    in_flight = timing_source != "host_enqueue"
    kept = _copy_of(span, read.snapshots)
    snapshots, read = read.snapshots, read._replace(snapshots=b"")
    return _new(ThreadInterval, (end, start, thread, COLLECTIVE, operation, in_flight, kept, None, 0, read, snapshots))


def _skipped(read: SkippedSpan) -> ThreadInterval:
    return ThreadInterval(read.end_ns, read.start_ns, read.thread, SKIPPED, SKIPPED, issued=read.steps)


def _run(read: OperatorsSpan) -> ThreadInterval:
    operators = Operators(
        count=read.operators,
        gap=read.gap,
        tail=read.tail,
        parts=read.parts,
        covered_ns=read.covered_ns,
        edges=tuple(edge * 1000 for edge in read.edges_us),
        is_loss=read.operator_kind == "loss",
        is_open=read.ending != "region",
    )
    kind = _KINDS_OF_RUNS.get(read.operator_kind) or ("forward" if read.grad else "inference")
    return ThreadInterval(
        read.end_ns, read.start_ns, read.thread, kind, OPERATORS, operators=operators, snapshots=read.snapshots
    )


def _copy_of(span: Span, snapshots: Snapshots) -> Span:
    """A copy that outlives the batch of the span, whose last holder may edit it. Traces do not repeat the snapshots."""
    copy = Span()
    copy.CopyFrom(span)
    if snapshots:
        keep_only(copy.attributes, lambda pair: pair.key not in _SNAPSHOTS)
    return copy
