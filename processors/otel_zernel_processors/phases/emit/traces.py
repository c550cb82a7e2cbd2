"""Steps as traces: a span for the step, a child for each piece of its ledger, collectives and long syncs below."""

import hashlib
import heapq
from bisect import bisect_right
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass

from opentelemetry.proto.resource.v1.resource_pb2 import Resource
from opentelemetry.proto.trace.v1.trace_pb2 import ResourceSpans, ScopeSpans, Span, TracesData

from otel_zernel.otlp.points import Attributes, key_values
from otel_zernel_processors.phases.config import TracesConfig, ns
from otel_zernel_processors.phases.emit.metrics import SCOPE
from otel_zernel_processors.phases.intake.intervals import Mark
from otel_zernel_processors.phases.scopes.attribution import PHASES, Piece
from otel_zernel_processors.phases.scopes.timeline import ClosedStep


@dataclass(frozen=True, slots=True)
class Candidate:
    """A step that may become a trace."""

    number: int
    """Of the step, counted from 1 in its process."""
    closed: ClosedStep
    seed: str
    """What ids are made of: the process and the step."""

    @property
    def trace_id(self) -> bytes:
        return identifier(self.seed, 16)

    @property
    def span_id(self) -> bytes:
        return identifier(self.seed, 8)

    @property
    def duration_ns(self) -> int:
        return self.closed.step.end - self.closed.step.start


class Sampler:
    """Chooses among the steps of one process and interval: every Nth, the slow, and the slowest.

    Ids are hashes of the process and the step, so that the same spans give the same traces again.
    """

    def __init__(self, config: TracesConfig, identity: str, drop: Callable[[int, str], None]) -> None:
        self._config = config
        self._drop = drop
        self._slow_ns = ns(config.slow_step)
        self._identity = identity
        self._number = 0
        self._chosen: list[Candidate] = []
        self._slowest: list[tuple[int, int, Candidate]] = []

    def consider(self, closed: ClosedStep) -> None:
        """Takes a step into account; counts it if there is no room for it."""
        self._number += 1
        lasted = closed.step.end - closed.step.start
        sampled = self._config.sample and self._number % self._config.sample == 0
        if sampled or (self._slow_ns and lasted > self._slow_ns):
            if len(self._chosen) >= self._config.max_steps:
                self._drop(1, "max_steps")
            else:
                self._chosen.append(self._candidate(closed))
        elif len(self._slowest) < self._config.slowest:
            heapq.heappush(self._slowest, (lasted, -self._number, self._candidate(closed)))
        elif self._slowest and lasted > self._slowest[0][0]:
            heapq.heapreplace(self._slowest, (lasted, -self._number, self._candidate(closed)))

    def chosen(self) -> list[Candidate]:
        """The steps chosen since the last call, in order."""
        chosen = [*self._chosen, *(candidate for _, _, candidate in self._slowest)]
        self._chosen, self._slowest = [], []
        return sorted(chosen, key=lambda candidate: candidate.number)

    def _candidate(self, closed: ClosedStep) -> Candidate:
        return Candidate(self._number, closed, f"{self._identity} {closed.step.start} {self._number}")

    def trace_of(self, candidate: Candidate, common: Attributes) -> Iterator[Span]:
        """The spans of a step's trace, the step itself first; what does not fit is counted."""
        step, room = candidate.closed.step, self._config.max_spans - 1
        root = Span(
            trace_id=candidate.trace_id,
            span_id=candidate.span_id,
            name="step",
            kind=Span.SPAN_KIND_INTERNAL,
            start_time_unix_nano=step.start,
            end_time_unix_nano=step.end,
            attributes=key_values({**common, **_described(candidate)}),
        )
        yield root
        pieces = candidate.closed.ledger.pieces
        children = []
        for position, piece in enumerate(pieces[:room]):
            children.append(_child(root, position, piece))
            yield children[-1]
        marks = _shown(candidate.closed, ns(self._config.long_sync))
        yield from _below(root, children, pieces, marks[: room - len(children)])
        if len(pieces) + len(marks) > room:
            self._drop(len(pieces) + len(marks) - room, "max_trace_spans")


def identifier(seed: str, size: int) -> bytes:
    """An id of `size` bytes, always the same for a seed, and never all zero."""
    return hashlib.blake2b(seed.encode(), digest_size=size).digest()


def traces_data(resource: Resource, spans: Iterable[Span]) -> TracesData:
    """The spans as a message."""
    return TracesData(
        resource_spans=[ResourceSpans(resource=resource, scope_spans=[ScopeSpans(scope=SCOPE, spans=spans)])]
    )


def _described(candidate: Candidate) -> Attributes:
    step, entries = candidate.closed.step, candidate.closed.ledger
    spent = entries.phase_ns()
    return {
        "zernel.step.number": candidate.number,
        "zernel.step.kind": step.kind,
        "zernel.step.lossy": step.lossy,
        "zernel.phase.source": "scopes",
        "zernel.collective.overlap": entries.overlap_ns / 1e9,
        **{f"zernel.phase.{phase}": spent.get(phase, 0) / 1e9 for phase in PHASES},
    }


def _child(parent: Span, position: int, piece: Piece) -> Span:
    return Span(
        trace_id=parent.trace_id,
        span_id=identifier(f"{parent.span_id.hex()} {position} {piece.start}", 8),
        parent_span_id=parent.span_id,
        name=piece.what,
        kind=Span.SPAN_KIND_INTERNAL,
        start_time_unix_nano=piece.start,
        end_time_unix_nano=piece.end,
        attributes=key_values({"zernel.phase": piece.phase}),
    )


def _shown(closed: ClosedStep, long_sync: int) -> list[Mark]:
    """The collectives that began in the step and its long syncs, in order."""
    syncs = [mark for mark in closed.step.marks if mark.kind == "sync" and mark.end - mark.start > long_sync]
    begin, end = closed.step.start, closed.step.end
    marks = [mark for mark in (*closed.collectives, *syncs) if mark.span and begin <= mark.start < end]
    return sorted(marks, key=lambda mark: mark[:5])


def _below(root: Span, children: Sequence[Span], pieces: Sequence[Piece], marks: Iterable[Mark]) -> Iterator[Span]:
    """The marks, each under the piece in which it began; under the step, where that found no room."""
    starts = [piece.start for piece in pieces]
    for mark in marks:
        position = bisect_right(starts, mark.start) - 1
        parent = children[position] if position < len(children) else root
        yield _again(root, parent, mark, mark.span or Span())


def _again(root: Span, parent: Span, mark: Mark, span: Span) -> Span:
    return Span(
        trace_id=root.trace_id,
        span_id=identifier(f"{root.span_id.hex()} {mark[:5]}", 8),
        parent_span_id=parent.span_id,
        name=mark.name,
        kind=Span.SPAN_KIND_INTERNAL,
        start_time_unix_nano=mark.start,
        end_time_unix_nano=mark.end,
        attributes=span.attributes,
        status=span.status,
    )
