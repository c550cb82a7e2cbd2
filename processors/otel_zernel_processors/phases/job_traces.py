"""Traces of a job: a span for the job's step, and below it the step of each rank."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from heapq import nlargest

from opentelemetry.proto.resource.v1.resource_pb2 import Resource
from opentelemetry.proto.trace.v1.trace_pb2 import Span

from otel_zernel.batch import Batch
from otel_zernel_libraries.training.step_spans import JobStepSpan
from otel_zernel_processors.phases.alignment.job_steps import JobStep
from otel_zernel_processors.phases.alignment.rank_step import RankStep
from otel_zernel_processors.phases.config import TracesConfig, ns
from otel_zernel_processors.phases.emit.traces import (
    TraceCandidate,
    chosen_alone,
    identifier,
    root_span_id,
    traces_data,
)
from otel_zernel_processors.phases.process import TrainingProcess

_LINKS = 64
"""Links of one span, at most."""
_Held = tuple[TrainingProcess, TraceCandidate]
_Key = tuple[int, int, int]
"""The rank, the start of the step, and its number: steps that take no time may start together."""


class JobTraces:
    """Chooses among the steps of a job, and makes their traces."""

    def __init__(self, config: TracesConfig) -> None:
        self._config = config
        self._held: dict[_Key, _Held] = {}
        self._held_before: dict[_Key, _Held] = {}
        """From the report before: a step waits for one more report."""
        self._now = 0

    def hold(self, ranks: Mapping[int, tuple[TrainingProcess, Iterable[TraceCandidate]]], now: int) -> None:
        """Adds the steps of each rank that may become traces. `now` (ns) is the time of the report."""
        if now > self._now:
            self._held_before, self._held, self._now = self._held, {}, now
        for rank, (process, candidates) in ranks.items():
            for candidate in candidates:
                self._held[rank, candidate.closed.step.start, candidate.number] = process, candidate

    def of_steps(self, steps: Sequence[JobStep], resource: Resource, size: int) -> Iterator[Batch]:
        """The traces of the chosen ones of these steps of a job with `size` ranks. `resource` is that of the job's
        spans."""
        held = {step.seed: self._held_by(step.ranks) for step in steps}
        chosen = [step for step in steps if self._is_chosen(step, held[step.seed])]
        seeds = {step.seed for step in chosen}
        spare = [step for step in steps if step.seed not in seeds and _is_whole(step, held[step.seed])]
        chosen += nlargest(self._config.slowest, spare, key=_duration)
        if roots := [_root(step, size) for step in chosen if step.has_root]:
            yield Batch(spans=traces_data(resource, roots))
        for step in chosen:
            for rank, (process, candidate) in held[step.seed].items():
                yield from process.steps.traces(process.resource, [candidate.of_rank(rank, step.seed)], step.number)

    def of_ranks(self, alone: Mapping[int, Iterable[RankStep]]) -> Iterator[Batch]:
        """The traces of steps that could not be aligned, with links between those of the same time."""
        held = {
            rank: [traced for step in some for traced in self._held_by({rank: step}).values()]
            for rank, some in alone.items()
        }
        chosen = {
            rank: (some[0][0], chosen_alone((candidate for _, candidate in some), self._config))
            for rank, some in held.items()
            if some
        }
        for rank, (process, candidates) in sorted(chosen.items()):
            others = [held_step for rank_, (_, some) in sorted(chosen.items()) if rank_ != rank for held_step in some]
            links = {candidate.seed: _links(candidate, others) for candidate in candidates}
            yield from process.steps.traces(process.resource, candidates, links=links)

    def _held_by(self, steps: Mapping[int, RankStep]) -> dict[int, _Held]:
        """Those of a step's ranks that hold it."""
        keys = {rank: (rank, step.start, step.number) for rank, step in sorted(steps.items())}
        held = {rank: self._held.get(key) or self._held_before.get(key) for rank, key in keys.items()}
        return {rank: traced for rank, traced in held.items() if traced}

    def _is_chosen(self, step: JobStep, held: Mapping[int, _Held]) -> bool:
        """Whether its number selects it on every rank, or its duration on any."""
        if any(candidate.is_sampled for _, candidate in held.values()):
            return step.is_counted or _is_whole(step, held)
        return bool(held) and 0 < ns(self._config.slow_step) < _duration(step)


def _is_whole(step: JobStep, held: Mapping[int, _Held]) -> bool:
    return len(held) == len(step.ranks)


def _duration(step: JobStep) -> int:
    return max(of_rank.duration_ns for of_rank in step.ranks.values())


def _links(candidate: TraceCandidate, others: Iterable[TraceCandidate]) -> list[TraceCandidate]:
    """The steps of other ranks at the same time."""
    step = candidate.closed.step
    same = [
        candidate
        for candidate in others
        if candidate.closed.step.start < step.end and step.start < candidate.closed.step.end
    ]
    return same[:_LINKS]


def _root(step: JobStep, size: int) -> Span:
    """The span of a step of a job: from the first rank's start to the last one's end."""
    ranks = step.ranks.values()
    span = JobStepSpan(
        start_ns=min(of_rank.start for of_rank in ranks),
        end_ns=max(of_rank.end for of_rank in ranks),
        number=step.number,
        ranks=len(ranks),
        world_size=size,
        critical_path=step.critical_path if len(ranks) == size else None,
    ).to_span()
    span.trace_id, span.span_id = identifier(step.seed, 16), root_span_id(step.seed)
    return span
