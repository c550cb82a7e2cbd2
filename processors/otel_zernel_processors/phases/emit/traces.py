"""Traces of steps: a span for the step, a child for each segment, and below those the collectives and long syncs."""

import hashlib
import heapq
from bisect import bisect_right
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace

from opentelemetry.proto.resource.v1.resource_pb2 import Resource
from opentelemetry.proto.trace.v1.trace_pb2 import ResourceSpans, ScopeSpans, Span, TracesData

from otel_zernel.batch import Batch
from otel_zernel_libraries.training.ledger import Activity, Segment
from otel_zernel_libraries.training.names import PHASES
from otel_zernel_libraries.training.step_spans import SegmentSpan, StepSpan
from otel_zernel_processors.phases.alignment.rank_step import RankStep
from otel_zernel_processors.phases.config import TracesConfig, ns
from otel_zernel_processors.phases.emit.metrics import SCOPE
from otel_zernel_processors.phases.intake.intervals import ThreadInterval
from otel_zernel_processors.phases.scopes.timeline import ClosedStep

_PIECE = 256
"""Spans of one batch of traces, at least."""
_WAITS = (Activity.COLLECTIVE, Activity.GPU_WAIT)
"""The activities that name a segment. Its position names any other."""
_SPARE = 8
"""Times `slowest`: steps that a rank holds until its job has chosen the slowest ones that all ranks hold."""


@dataclass(frozen=True, slots=True)
class TraceCandidate:
    """A step that may become a trace, or a part of the trace of its job's step."""

    number: int
    """The number of the step in its process, from 1."""
    closed: ClosedStep
    seed: str
    """The text whose hash is the id of the step's span: process and step, or the job's step and the rank."""
    is_sampled: bool = True
    """Whether its number selects it. Else its duration does."""
    trace_seed: str = ""
    """The text whose hash is the id of the trace; empty for a trace of its own, which has the step's seed."""
    parent: bytes = b""
    """The id of the span of the job's step; empty for a trace of its own."""

    @property
    def trace_id(self) -> bytes:
        """16 bytes."""
        return identifier(self.trace_seed or self.seed, 16)

    @property
    def span_id(self) -> bytes:
        """8 bytes: the id of the step's span."""
        return identifier(self.seed, 8)

    @property
    def duration_ns(self) -> int:
        """The duration of the step."""
        return self.closed.step.end - self.closed.step.start

    def of_rank(self, rank: int, trace_seed: str) -> "TraceCandidate":
        """The same step as a part of the trace of its job's step."""
        seed = f"{trace_seed} rank {rank}"
        return replace(self, seed=seed, trace_seed=trace_seed, parent=root_span_id(trace_seed))


def chosen_alone(candidates: Iterable[TraceCandidate], config: TracesConfig) -> list[TraceCandidate]:
    """The candidates that become traces of their own: a rank holds more of the slowest steps than its job chooses."""
    some = list(candidates)
    slow = [
        candidate
        for candidate in some
        if not candidate.is_sampled and not 0 < ns(config.slow_step) < candidate.duration_ns
    ]
    spare = sorted(slow, key=lambda candidate: -candidate.duration_ns)[config.slowest :]
    return [candidate for candidate in some if candidate not in spare]


def root_span_id(trace_seed: str) -> bytes:
    """The id (8 bytes) of the span of a job's step."""
    return identifier(f"{trace_seed} job", 8)


class TraceSampler:
    """Chooses among the steps of one process and interval: every Nth step, slow steps, and the slowest ones.

    Ids are hashes of process and step, so the same spans always give the same traces.
    """

    def __init__(
        self,
        config: TracesConfig,
        seed: str,
        drop: Callable[[int, str], None],
        merge: Callable[[TraceCandidate], None] | None = None,
    ) -> None:
        """`seed` identifies the process. `drop` counts steps and spans beyond the limits. `merge` takes the steps
        beyond `max_steps` instead."""
        self._config = config
        self._drop = drop
        self._merge = merge
        self._slow_ns = ns(config.slow_step)
        self._seed = seed
        self._chosen: list[TraceCandidate] = []
        self._slowest: list[tuple[int, int, TraceCandidate]] = []
        self.cause = ""
        """The first cause of its job."""
        self.offset: int | None = None
        """For a rank whose steps are aligned by time: the number of a meeting of its job minus that of its own. Else
        None."""

    def add(self, closed: ClosedStep, step: RankStep, *, is_rank: bool) -> None:
        """Considers the next step. A chosen step beyond `max_steps` is merged, or dropped and counted.

        `is_rank`: whether the process is one of several ranks. Then numbers that the ranks share choose the steps.
        """
        lasted = step.duration_ns
        sampled = self._is_sampled(step) if is_rank else _every(step.number, self._config.sample)
        most = self._config.slowest * (_SPARE if is_rank else 1)
        if sampled or (self._slow_ns and lasted > self._slow_ns):
            candidate = self._candidate(closed, step, sampled=sampled)
            if len(self._chosen) < self._config.max_steps:
                self._chosen.append(candidate)
            elif self._merge:
                self._merge(candidate)
            else:
                self._drop(1, "max_steps")
        elif len(self._slowest) < most:
            heapq.heappush(self._slowest, (lasted, -step.number, self._candidate(closed, step)))
        elif self._slowest and lasted > self._slowest[0][0]:
            heapq.heapreplace(self._slowest, (lasted, -step.number, self._candidate(closed, step)))

    def _candidate(self, closed: ClosedStep, step: RankStep, *, sampled: bool = False) -> TraceCandidate:
        return TraceCandidate(step.number, closed, f"{self._seed} {step.start} {step.number}", sampled)

    def pop_chosen(self) -> list[TraceCandidate]:
        """The steps chosen since the last call, in order."""
        chosen = [*self._chosen, *(candidate for _, _, candidate in self._slowest)]
        self._chosen, self._slowest = [], []
        return sorted(chosen, key=lambda candidate: candidate.number)

    def _is_sampled(self, step: RankStep) -> bool:
        """Whether a number that all ranks share selects the step.

        Numbers of collectives advance by several in each step, so every Nth number could be in none of them, or in all.
        Their hashes select one step in N.
        """
        if step.collective and self.offset is None:
            number = int.from_bytes(identifier(f"sample {step.collective.sequence}", 8), "big")
        else:
            number = step.meeting + (self.offset or 0) if step.meeting else step.number
        return _every(number, self._config.sample)

    def trace_of(
        self, candidate: TraceCandidate, pid: int, job_number: int = 0, links: Sequence[TraceCandidate] = ()
    ) -> Iterator[Span]:
        """The spans of a step; the span of the step itself is the first. `job_number` is that of the job's step, 0
        without one. The span links to the steps in `links`. Spans beyond `max_spans` are dropped and counted."""
        room = self._config.max_spans - 1
        root = _step_span(candidate, pid, job_number, self.cause).to_span()
        root.trace_id, root.span_id, root.parent_span_id = candidate.trace_id, candidate.span_id, candidate.parent
        root.links.extend(Span.Link(trace_id=link.trace_id, span_id=link.span_id) for link in links)
        yield root
        segments = candidate.closed.attribution.segments
        children = []
        for position, segment in enumerate(segments[:room]):
            children.append(_child(root, position, segment))
            yield children[-1]
        intervals = _repeated(candidate.closed, ns(self._config.long_sync))
        yield from _below(root, children, segments, intervals[: room - len(children)])
        if len(segments) + len(intervals) > room:
            self._drop(len(segments) + len(intervals) - room, "max_trace_spans")


def trace_batches(traces: Iterable[Iterator[Span]], resource: Resource) -> Iterator[Batch]:
    """Batches of whole traces."""
    spans: list[Span] = []
    for trace in traces:
        spans += trace
        if len(spans) >= _PIECE:
            yield Batch(spans=traces_data(resource, spans))
            spans = []
    if spans:
        yield Batch(spans=traces_data(resource, spans))


def _every(number: int, sample: int) -> bool:
    return sample > 0 and number % sample == 0


def identifier(seed: str, size: int) -> bytes:
    """An id of `size` bytes, always the same for a seed."""
    return hashlib.blake2b(seed.encode(), digest_size=size).digest()


def traces_data(resource: Resource, spans: Iterable[Span]) -> TracesData:
    """Spans of one resource as a message."""
    return TracesData(
        resource_spans=[ResourceSpans(resource=resource, scope_spans=[ScopeSpans(scope=SCOPE, spans=spans)])]
    )


def _step_span(candidate: TraceCandidate, pid: int, job_number: int, cause: str) -> StepSpan:
    step, attribution = candidate.closed.step, candidate.closed.attribution
    spent = attribution.phase_ns()
    return StepSpan(
        start_ns=step.start,
        end_ns=step.end,
        number=candidate.number,
        kind=step.kind,
        boundary=step.boundary,
        thread=step.thread,
        pid=pid,
        job_number=job_number,
        is_lossy=step.lossy,
        overlap_ns=attribution.overlap_ns,
        phase_ns=tuple(spent.get(phase, 0) for phase in PHASES),
        cause=cause,
    )


def _child(parent: Span, position: int, segment: Segment) -> Span:
    moment = segment.moment
    span = SegmentSpan(
        name=moment.activity if moment.activity in _WAITS else moment.position,
        start_ns=segment.start,
        end_ns=segment.end,
        phase=moment.phase,
        detail=moment.detail,
        position=moment.position,
        activity=moment.activity,
    ).to_span()
    return _below_parent(parent, f"{parent.span_id.hex()} {position} {segment.start}", span)


def _repeated(closed: ClosedStep, long_sync_ns: int) -> list[ThreadInterval]:
    """The collectives and the long syncs that began in the step, in order: the trace repeats their spans."""
    syncs = [
        interval
        for interval in closed.step.intervals
        if interval.kind == "sync" and interval.end - interval.start > long_sync_ns
    ]
    begin, end = closed.step.start, closed.step.end
    repeated = [
        interval for interval in (*closed.collectives, *syncs) if interval.span and begin <= interval.start < end
    ]
    return sorted(repeated, key=lambda interval: interval[:5])


def _below(
    root: Span, children: Sequence[Span], segments: Sequence[Segment], intervals: Iterable[ThreadInterval]
) -> Iterator[Span]:
    """The intervals, each below the segment in which it began, or below the step if that segment has no span."""
    starts = [segment.start for segment in segments]
    for interval in intervals:
        position = bisect_right(starts, interval.start) - 1
        parent = children[position] if position < len(children) else root
        yield _repeat(root, parent, interval, interval.span or Span())


def _repeat(root: Span, parent: Span, interval: ThreadInterval, span: Span) -> Span:
    repeated = Span(
        name=interval.name,
        kind=Span.SPAN_KIND_INTERNAL,
        start_time_unix_nano=interval.start,
        end_time_unix_nano=interval.end,
        attributes=span.attributes,
        status=span.status if span.HasField("status") else None,
    )
    return _below_parent(parent, f"{root.span_id.hex()} {interval[:5]}", repeated)


def _below_parent(parent: Span, seed: str, span: Span) -> Span:
    """The span, as a child of another. Equal seeds give equal span ids."""
    span.trace_id, span.span_id, span.parent_span_id = parent.trace_id, identifier(seed, 8), parent.span_id
    return span
