"""The spans of a training process that a receiver emits and `phases` reads.

Each class is one kind of span in docs/development/spans.md, and writes and reads it. Times are ns since 1970.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from itertools import pairwise
from typing import ClassVar, Final, Literal, NamedTuple, Self, get_args

from opentelemetry.proto.common.v1.common_pb2 import KeyValue
from opentelemetry.proto.trace.v1.trace_pb2 import Span, Status

from otel_zernel.otlp.points import AttributeValue
from otel_zernel_libraries.training import semconv
from otel_zernel_libraries.training.ledger import joined_snapshots
from otel_zernel_libraries.training.span_attributes import MalformedSpan, SpanAttributes, span_of

ThreadKind = Literal["data_loading", "optimizer", "zero_grad", "backward", "ddp", "user", "sync"]
"""The values of `zernel.interval` of scopes and waits."""
OperatorKind = Literal["model", "update", "loss", "batch", "noise", "in_place"]
"""The values of `zernel.operators.kind`; docs/development/spans.md defines them."""
THREAD_KINDS: Final = frozenset(get_args(ThreadKind))
_MOST_EDGES: Final = 64
"""Edges of parts in one run; more are ignored."""
_MOST_PARTS: Final = 4096
"""Parts of the period of a device; more are ignored."""
COLLECTIVE: Final = "collective"
OPERATORS: Final = "operators"
"""The values of `zernel.interval` of collectives and of runs of operators."""
SHORT_STEP_NS: Final = 5_000_000
"""Shorter steps may be left out if there are many."""
_new = tuple.__new__
"""Makes a named tuple. Its own `__new__` takes twice as long."""
_INTERVAL, _PHASE, _THREAD_ID = semconv.INTERVAL, semconv.PHASE, semconv.THREAD_ID
_SNAPSHOT_BEGIN, _SNAPSHOT_END = semconv.SNAPSHOT_BEGIN, semconv.SNAPSHOT_END
_FEWEST: Final = 3
"""The attributes that a span has at least, if the receiver reports the phase: most have no others."""
_MOST_DIGITS: Final = 18
"""Digits of an edge: 63 bits."""
_NS: Final = 1e9  # nanoseconds to the second
Snapshots = bytes
"""The counters of a thread at the begin of a span, and those at its end, each as `Snapshot.to_bytes` returns them.
Empty if the receiver does not report them."""


class ThreadSpan(NamedTuple):
    """A scope of PyTorch or of the program, or a wait of the host, on one thread.

    It is a tuple, because `phases` reads many thousands of them a second.
    """

    kind: str
    """A `ThreadKind`. A newer receiver may know more."""
    name: str
    thread: int
    start_ns: int
    end_ns: int
    phase: str = ""
    """The phase that the kernel saw; empty if the receiver does not report it."""
    issued: int = 0
    """Of loads and optimizers: the number of the latest collective that had been issued; 0 if unknown."""
    scope_name: str = ""
    """Of `user`: the name that the program gave it; empty if unknown."""
    failed: bool = False
    """Whether an exception left the scope open."""
    snapshots: Snapshots = b""

    def to_span(self) -> Span:
        attributes: dict[str, AttributeValue | None] = {
            **_common(self.thread, self.phase, self.kind),
            semconv.SCOPE_NAME: self.scope_name or None,
            semconv.COLLECTIVE_ISSUED: self.issued or None,
        }
        span = _with_snapshots(span_of(self.name, self.start_ns, self.end_ns, attributes), self.snapshots)
        return _with_status(span, failed=self.failed)


class CollectiveSpan(NamedTuple):
    """A call of a collective, or the time until the end of the next wait for the GPU. A tuple like `ThreadSpan`."""

    operation: str
    """`all_reduce`. It is also the name of the span."""
    thread: int
    start_ns: int
    end_ns: int
    timing_source: str
    """`host_enqueue`: the span covers only the call. `host_upper_bound`: until the collective has completed."""
    bytes: int
    communicator: str
    """The communicator in its process."""
    phase: str = ""
    shared_communicator: str = ""
    """The name of the communicator on all ranks; empty if it has none."""
    sequence: int = 0
    """The number of the collective among those of its communicator, from 1; 0 if unknown."""
    rank: int | None = None
    """The rank in the communicator; None if unknown."""
    world_size: int = 0
    """The ranks of the communicator; 0 if unknown."""
    snapshots: Snapshots = b""

    @property
    def kind(self) -> str:
        return COLLECTIVE

    def to_span(self) -> Span:
        attributes: dict[str, AttributeValue | None] = {
            **_common(self.thread, self.phase, COLLECTIVE),
            semconv.NCCL_OPERATION: self.operation,
            semconv.TIMING_SOURCE: self.timing_source,
            semconv.NCCL_BYTES: self.bytes,
            semconv.NCCL_COMMUNICATOR: self.communicator,
            semconv.COLLECTIVE_COMMUNICATOR: self.shared_communicator or None,
            semconv.RANK: self.rank,
            semconv.WORLD_SIZE: self.world_size or None,
            semconv.COLLECTIVE_SEQUENCE: self.sequence or None,
        }
        return _with_snapshots(span_of(self.operation, self.start_ns, self.end_ns, attributes), self.snapshots)

    @classmethod
    def _read(cls, span: Span, thread: int, phase: str, pairs: Mapping[str, KeyValue]) -> Self:
        try:  # read without `SpanAttributes` where it matters: jobs make many thousands a second
            operation = pairs[semconv.NCCL_OPERATION].value.string_value
            timing_source = pairs[semconv.TIMING_SOURCE].value.string_value
            communicator = pairs[semconv.NCCL_COMMUNICATOR].value.string_value
        except KeyError as missing:
            raise MalformedSpan(missing.args[0]) from None
        read = SpanAttributes(pairs)
        if not (operation and timing_source and communicator):
            names = semconv.NCCL_OPERATION, semconv.TIMING_SOURCE, semconv.NCCL_COMMUNICATOR
            raise MalformedSpan(next(name for name in names if not read.text(name)))
        return _new(
            cls,
            (
                operation,
                thread,
                span.start_time_unix_nano,
                span.end_time_unix_nano,
                timing_source,
                read.integer(semconv.NCCL_BYTES),
                communicator,
                phase,
                read.text(semconv.COLLECTIVE_COMMUNICATOR) if semconv.COLLECTIVE_COMMUNICATOR in pairs else "",
                read.integer(semconv.COLLECTIVE_SEQUENCE) if semconv.COLLECTIVE_SEQUENCE in pairs else 0,
                read.integer(semconv.RANK) if semconv.RANK in pairs else None,
                read.integer(semconv.WORLD_SIZE) if semconv.WORLD_SIZE in pairs else 0,
                _snapshots_of(pairs),
            ),
        )


class Evidence(NamedTuple):
    """A thread's doings in a period, in recordings of releases without snapshots. 0 if it is not reported."""

    blocked_ns: int = 0
    """Time off the CPU by the thread's own will."""
    file_faults: int = 0
    """Page faults on mapped files and shared memory."""
    faults: int = 0
    """All page faults, in place of `file_faults` where the kernel cannot tell them apart."""
    read: int = 0
    """Bytes that its system calls have read."""
    copies: int = 0
    """Copies from the host to a device."""


NO_EVIDENCE: Final = Evidence()
_GAP: Final = (
    semconv.GAP_BLOCKED,
    semconv.GAP_FILE_FAULTS,
    semconv.GAP_FAULTS,
    semconv.GAP_READ,
    semconv.GAP_COPIES,
)
_TAIL: Final = (
    semconv.TAIL_BLOCKED,
    semconv.TAIL_FILE_FAULTS,
    semconv.TAIL_FAULTS,
    semconv.TAIL_READ,
    semconv.TAIL_COPIES,
)
"""The attributes of the fields of `Evidence`, in their order."""


class OperatorsSpan(NamedTuple):
    """A run of a model's operators on one thread. A tuple like `ThreadSpan`."""

    thread: int
    start_ns: int
    end_ns: int
    operators: int
    """The operators that were probed."""
    operator_kind: str
    """An `OperatorKind`. A newer receiver may know more."""
    ending: str
    """`operator`, `region` or `next`: see docs/development/spans.md."""
    grad: bool
    """Whether gradients are on."""
    phase: str = ""
    parts: int = 1
    covered_ns: int = 0
    """The time within the parts, if there are several; 0 if unknown."""
    edges_us: tuple[int, ...] = ()
    """The beginning and the end of each part since the start of the span; empty if unknown."""
    gap: Evidence = NO_EVIDENCE
    """Since the thread's previous mark."""
    tail: Evidence = NO_EVIDENCE
    """After the last operator. The ebpf receiver reports no copies there."""
    snapshots: Snapshots = b""

    @property
    def kind(self) -> str:
        return OPERATORS

    def to_span(self) -> Span:
        attributes: dict[str, AttributeValue | None] = {
            **_common(self.thread, self.phase, OPERATORS),
            semconv.OPERATORS_COUNT: self.operators,
            semconv.OPERATORS_KIND: self.operator_kind,
            semconv.OPERATORS_END: self.ending,
            semconv.GRAD: self.grad,
        }
        if self.parts > 1:
            attributes[semconv.OPERATORS_PARTS] = self.parts
            attributes[semconv.OPERATORS_TIME] = self.covered_ns / _NS
        if self.edges_us:
            attributes[semconv.OPERATORS_EDGES] = " ".join(map(str, self.edges_us))
        for evidence, names in ((self.gap, _GAP), (self.tail, _TAIL)):
            values = (evidence.blocked_ns / _NS, *evidence[1:])
            attributes.update((name, value) for name, value in zip(names, values, strict=True) if value)
        return _with_snapshots(span_of(OPERATORS, self.start_ns, self.end_ns, attributes), self.snapshots)

    @classmethod
    def _read(cls, span: Span, thread: int, phase: str, pairs: Mapping[str, KeyValue]) -> Self:
        read = SpanAttributes(pairs)
        return cls(
            thread=thread,
            start_ns=span.start_time_unix_nano,
            end_ns=span.end_time_unix_nano,
            phase=phase,
            operators=read.integer(semconv.OPERATORS_COUNT),
            operator_kind=read.text(semconv.OPERATORS_KIND),
            ending=read.text(semconv.OPERATORS_END),
            grad=read.flag(semconv.GRAD),
            parts=read.integer(semconv.OPERATORS_PARTS, 1),
            covered_ns=read.duration_ns(semconv.OPERATORS_TIME, 0),
            edges_us=_edges_of(read.text(semconv.OPERATORS_EDGES, "")),
            gap=_evidence_of(read, pairs, _GAP),
            tail=_evidence_of(read, pairs, _TAIL),
            snapshots=_snapshots_of(pairs),
        )


def _evidence_of(read: SpanAttributes, pairs: Mapping[str, KeyValue], names: tuple[str, ...]) -> Evidence:
    if pairs.keys().isdisjoint(names):
        return NO_EVIDENCE
    blocked, *counts = names
    return Evidence(read.duration_ns(blocked, 0), *(read.integer(name, 0) for name in counts))


@dataclass(frozen=True, slots=True)
class Ending:
    """How a process or a worker ended."""

    way: str
    """`exit`, `signal` or `exec`. A newer receiver may know more."""
    exit_code: int | None = None
    """Of `exit`; None if unknown."""
    signal: int = 0
    """Of `signal`: its number; 0 if unknown."""
    signal_name: str = ""
    """Of `signal`: `SIGKILL`; empty if unknown."""
    is_out_of_memory: bool = False
    """Of `signal`: whether the kernel sent it because memory was used up."""
    program: str = ""
    """Of `exec`: the name of the new program; empty if unknown."""

    @property
    def is_over(self) -> bool:
        """Whether the process is gone. After `exec` it runs another program."""
        return self.way in ("exit", "signal")

    @property
    def has_failed(self) -> bool:
        return self.way == "signal" or bool(self.exit_code)

    def _attributes(self) -> dict[str, AttributeValue | None]:
        return {
            semconv.PROCESS_END: self.way,
            "process.exit.code": self.exit_code,
            semconv.PROCESS_SIGNAL: self.signal or None,
            "process.signal": self.signal_name or None,
            semconv.PROCESS_OUT_OF_MEMORY: self.is_out_of_memory or None,
            semconv.PROCESS_EXEC: self.program or None,
        }

    @classmethod
    def _of(cls, read: SpanAttributes) -> Self:
        return cls(
            read.text(semconv.PROCESS_END),
            exit_code=read.integer("process.exit.code") if "process.exit.code" in read else None,
            signal=read.integer(semconv.PROCESS_SIGNAL, 0),
            signal_name=read.text("process.signal", ""),
            is_out_of_memory=read.flag(semconv.PROCESS_OUT_OF_MEMORY, False),
            program=read.text(semconv.PROCESS_EXEC, ""),
        )


@dataclass(frozen=True, slots=True)
class ProcessSpan:
    """A process, from its first probed call to its end."""

    kind: ClassVar = "process"

    thread: int
    start_ns: int
    end_ns: int
    ending: Ending
    phase: str = ""

    def to_span(self) -> Span:
        attributes = {**_common(self.thread, self.phase, self.kind), **self.ending._attributes()}
        return _with_status(span_of(self.kind, self.start_ns, self.end_ns, attributes), failed=self.ending.has_failed)

    @classmethod
    def _read(cls, span: Span, thread: int, phase: str, pairs: Mapping[str, KeyValue]) -> Self:
        read = SpanAttributes(pairs)
        return cls(
            thread=thread,
            start_ns=span.start_time_unix_nano,
            end_ns=span.end_time_unix_nano,
            ending=Ending._of(read),
            phase=phase,
        )


@dataclass(frozen=True, slots=True)
class WorkerSpan:
    """A data-loading worker that failed, from its start to its end. Its resource is the process that it served."""

    kind: ClassVar = "worker"

    pid: int
    start_ns: int
    end_ns: int
    ending: Ending
    phase: str = ""

    def to_span(self) -> Span:
        attributes: dict[str, AttributeValue | None] = {
            semconv.PHASE: self.phase or None,
            semconv.INTERVAL: self.kind,
            **self.ending._attributes(),
            semconv.DATALOADER_WORKER_PID: self.pid,
        }
        return _with_status(span_of(self.kind, self.start_ns, self.end_ns, attributes), failed=self.ending.has_failed)

    @classmethod
    def _read(cls, span: Span, thread: int, phase: str, pairs: Mapping[str, KeyValue]) -> Self:
        read = SpanAttributes(pairs)
        return cls(
            pid=read.integer(semconv.DATALOADER_WORKER_PID),
            start_ns=span.start_time_unix_nano,
            end_ns=span.end_time_unix_nano,
            ending=Ending._of(read),
            phase=phase,
        )


@dataclass(frozen=True, slots=True)
class DeviceSpan:
    """How busy the devices of a process were in a period, by the records of CUPTI."""

    kind: ClassVar = "device"

    pid: int
    start_ns: int
    end_ns: int
    busy: bytes
    """The busy part of each of equal parts of the period: 0 for none, 255 for all of it."""
    phase: str = ""

    def to_span(self) -> Span:
        span = span_of(self.kind, self.start_ns, self.end_ns, _common(self.pid, self.phase, self.kind))
        span.attributes.add(key=semconv.DEVICE_BUSY).value.bytes_value = self.busy
        return span

    @classmethod
    def _read(cls, span: Span, thread: int, phase: str, pairs: Mapping[str, KeyValue]) -> Self:
        busy = SpanAttributes(pairs).data(semconv.DEVICE_BUSY)
        if not busy:
            raise MalformedSpan(semconv.DEVICE_BUSY)
        return cls(thread, span.start_time_unix_nano, span.end_time_unix_nano, busy[:_MOST_PARTS], phase)


@dataclass(frozen=True, slots=True)
class SkippedSpan:
    """Steps of a thread in a row that have no spans, each of less than `SHORT_STEP_NS`. The last one ends with the next
    load or, without a loader, with the next optimizer's step, which has a span and ends when this one does."""

    kind: ClassVar = "skipped"

    thread: int
    start_ns: int
    end_ns: int
    steps: int
    phase: str = ""

    def to_span(self) -> Span:
        attributes = {**_common(self.thread, self.phase, self.kind), semconv.STEPS_COUNT: self.steps}
        return span_of(self.kind, self.start_ns, self.end_ns, attributes)

    @classmethod
    def _read(cls, span: Span, thread: int, phase: str, pairs: Mapping[str, KeyValue]) -> Self:
        steps = SpanAttributes(pairs).integer(semconv.STEPS_COUNT)
        if steps < 1:
            raise MalformedSpan(semconv.STEPS_COUNT)
        return cls(thread, span.start_time_unix_nano, span.end_time_unix_nano, steps, phase)


IntervalSpan = ThreadSpan | CollectiveSpan | OperatorsSpan | ProcessSpan | WorkerSpan | DeviceSpan | SkippedSpan
_Detailed = CollectiveSpan | OperatorsSpan | ProcessSpan | WorkerSpan | DeviceSpan | SkippedSpan
_DETAILED: Final[dict[str, type[_Detailed]]] = {
    COLLECTIVE: CollectiveSpan,
    OPERATORS: OperatorsSpan,
    ProcessSpan.kind: ProcessSpan,
    WorkerSpan.kind: WorkerSpan,
    DeviceSpan.kind: DeviceSpan,
    SkippedSpan.kind: SkippedSpan,
}
"""By the value of `zernel.interval`: the kinds with required attributes of their own."""


def interval_of(span: Span) -> IntervalSpan | None:
    """Reads a span of any of these kinds; None if it has no `zernel.interval` and so belongs to another program.

    Raises `MalformedSpan`.
    """
    phase, thread, has_others = "", 0, False
    all_attributes = span.attributes
    attributes = iter(all_attributes)
    for attribute in attributes:
        key = attribute.key  # reading a field of a message dominates the cost of this function
        if key == _THREAD_ID:
            thread = attribute.value.int_value
        elif key == _PHASE:
            phase = attribute.value.string_value
        elif key == _INTERVAL:
            kind = attribute.value.string_value
            break
        else:
            has_others = True
    else:
        return None
    more: dict[str, KeyValue] = {}
    if has_others or len(all_attributes) > _FEWEST or not (thread and phase):
        more = {pair.key: pair for pair in (all_attributes if has_others else attributes)}
        if not (thread and phase):
            phase = phase or SpanAttributes(more).text(_PHASE, "")
            thread = thread or SpanAttributes(more).integer(_THREAD_ID, 0)
    if not kind or (not thread and kind != WorkerSpan.kind):
        raise MalformedSpan(semconv.THREAD_ID if kind else semconv.INTERVAL)
    if kind in _DETAILED:
        return _DETAILED[kind]._read(span, thread, phase, more)
    issued, scope_name, snapshots = 0, "", b""
    if more:
        if semconv.COLLECTIVE_ISSUED in more:
            issued = SpanAttributes(more).integer(semconv.COLLECTIVE_ISSUED)
        if semconv.SCOPE_NAME in more:
            scope_name = SpanAttributes(more).text(semconv.SCOPE_NAME)
        snapshots = _snapshots_of(more)
    failed = span.HasField("status") and span.status.code == Status.STATUS_CODE_ERROR
    start, end = span.start_time_unix_nano, span.end_time_unix_nano
    return _new(ThreadSpan, (kind, span.name, thread, start, end, phase, issued, scope_name, failed, snapshots))


def _common(thread: int, phase: str, kind: str) -> dict[str, AttributeValue | None]:
    return {_THREAD_ID: thread, semconv.PHASE: phase or None, semconv.INTERVAL: kind}


def _with_snapshots(span: Span, snapshots: Snapshots) -> Span:
    if snapshots:
        half = len(snapshots) // 2
        span.attributes.add(key=_SNAPSHOT_BEGIN).value.bytes_value = snapshots[:half]
        span.attributes.add(key=_SNAPSHOT_END).value.bytes_value = snapshots[half:]
    return span


def _snapshots_of(pairs: Mapping[str, KeyValue]) -> Snapshots:
    begin, end = pairs.get(_SNAPSHOT_BEGIN), pairs.get(_SNAPSHOT_END)
    if begin is None or end is None:
        return b""
    first, last = begin.value.bytes_value, end.value.bytes_value
    if not (first and last):
        read = SpanAttributes(pairs)  # raises `MalformedSpan` if they are no bytes
        first, last = read.data(_SNAPSHOT_BEGIN), read.data(_SNAPSHOT_END)
    return joined_snapshots(first, last)


def _with_status(span: Span, *, failed: bool) -> Span:
    if failed:
        span.status.code = Status.STATUS_CODE_ERROR
    return span


def _edges_of(text: str) -> tuple[int, ...]:
    """Times in us, separated by spaces; empty if they are not in order."""
    texts = text.split(maxsplit=_MOST_EDGES)[:_MOST_EDGES]
    edges = tuple(int(text) for text in texts if text.isdecimal() and len(text) <= _MOST_DIGITS)
    is_valid = len(edges) % 2 == 0 and all(before <= after for before, after in pairwise(edges))
    return edges if is_valid else ()
