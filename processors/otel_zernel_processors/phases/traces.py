"""Steps as traces: a span for the step, a child for each piece of its ledger, collectives and long syncs below."""

import hashlib
import heapq
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

from opentelemetry.proto.resource.v1.resource_pb2 import Resource
from opentelemetry.proto.trace.v1.trace_pb2 import ResourceSpans, ScopeSpans, Span, TracesData

from otel_zernel.points import Attributes, key_values
from otel_zernel_processors.phases.config import TracesConfig, ns
from otel_zernel_processors.phases.ledger import PHASES, Piece
from otel_zernel_processors.phases.marks import Mark
from otel_zernel_processors.phases.metrics import SCOPE
from otel_zernel_processors.phases.timeline import ClosedStep


@dataclass(frozen=True, slots=True)
class Candidate:
    """A step that may become a trace."""

    number: int
    """Of the step, counted from 1 in its process."""
    closed: ClosedStep
    trace_id: bytes
    span_id: bytes

    @property
    def duration_ns(self) -> int:
        return self.closed.step.end - self.closed.step.start


class Sampler:
    """Chooses among the steps of one process and interval: every Nth, the slow, and the slowest.

    Ids are hashes of the process and the step, so that the same spans give the same traces again.
    """

    def __init__(self, config: TracesConfig, identity: str) -> None:
        self._config = config
        self._identity = identity
        self._number = 0
        self._chosen: list[Candidate] = []
        self._slowest: list[tuple[int, int, Candidate]] = []

    def consider(self, closed: ClosedStep) -> bool:
        """Takes a step into account; whether there was room for it."""
        self._number += 1
        seed = f"{self._identity} {closed.step.start} {self._number}"
        candidate = Candidate(self._number, closed, identifier(seed, 16), identifier(seed, 8))
        sampled = self._config.sample and self._number % self._config.sample == 0
        slow = self._config.slow_step and candidate.duration_ns > ns(self._config.slow_step)
        if sampled or slow:
            if len(self._chosen) >= self._config.max_steps:
                return False
            self._chosen.append(candidate)
        elif self._config.slowest:
            heapq.heappush(self._slowest, (candidate.duration_ns, -candidate.number, candidate))
            if len(self._slowest) > self._config.slowest:
                heapq.heappop(self._slowest)
        return True

    def chosen(self) -> list[Candidate]:
        """The steps chosen since the last call, in order."""
        chosen = [*self._chosen, *(candidate for _, _, candidate in self._slowest)]
        self._chosen, self._slowest = [], []
        return sorted(chosen, key=lambda candidate: candidate.number)

    def trace_of(self, candidate: Candidate, common: Attributes) -> tuple[list[Span], int]:
        """The spans of a step's trace, the step itself first, and how many did not fit."""
        step = candidate.closed.step
        root = Span(
            trace_id=candidate.trace_id,
            span_id=candidate.span_id,
            name="step",
            kind=Span.SPAN_KIND_INTERNAL,
            start_time_unix_nano=step.start,
            end_time_unix_nano=step.end,
            attributes=key_values({**common, **_described(candidate)}),
        )
        spans = [root]
        pieces = candidate.closed.ledger.pieces
        spans += [_child(candidate, root.span_id, position, piece) for position, piece in enumerate(pieces)]
        spans += _below(candidate, spans[1:], pieces, ns(self._config.long_sync))
        return spans[: self._config.max_spans], max(len(spans) - self._config.max_spans, 0)


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
    spent = {phase: sum(p.end - p.start for p in entries.pieces if p.phase == phase) / 1e9 for phase in PHASES}
    return {
        "zernel.step.number": candidate.number,
        "zernel.step.kind": step.kind,
        "zernel.step.lossy": step.lossy,
        "zernel.collective.overlap": entries.overlap_ns / 1e9,
        **{f"zernel.phase.{phase}": seconds for phase, seconds in spent.items()},
    }


def _child(candidate: Candidate, parent: bytes, position: int, piece: Piece) -> Span:
    return Span(
        trace_id=candidate.trace_id,
        span_id=identifier(f"{candidate.span_id.hex()} {position} {piece.start}", 8),
        parent_span_id=parent,
        name=piece.what,
        kind=Span.SPAN_KIND_INTERNAL,
        start_time_unix_nano=piece.start,
        end_time_unix_nano=piece.end,
        attributes=key_values({"zernel.phase": piece.phase}),
    )


def _below(candidate: Candidate, children: Sequence[Span], pieces: Sequence[Piece], long_sync: int) -> Iterator[Span]:
    """Collectives and long syncs, each under the piece in which it began."""
    syncs = [mark for mark in candidate.closed.step.marks if mark.kind == "sync" and mark.end - mark.start > long_sync]
    marks: list[Mark] = sorted([*candidate.closed.collectives, *syncs])
    for mark in marks:
        for piece, child in zip(pieces, children, strict=True):
            if piece.start <= mark.start < piece.end and mark.span is not None:
                yield _again(candidate, child.span_id, mark, mark.span)


def _again(candidate: Candidate, parent: bytes, mark: Mark, span: Span) -> Span:
    return Span(
        trace_id=candidate.trace_id,
        span_id=identifier(f"{candidate.span_id.hex()} {mark[:5]}", 8),
        parent_span_id=parent,
        name=mark.name,
        kind=Span.SPAN_KIND_INTERNAL,
        start_time_unix_nano=mark.start,
        end_time_unix_nano=mark.end,
        attributes=span.attributes,
        status=span.status,
    )
