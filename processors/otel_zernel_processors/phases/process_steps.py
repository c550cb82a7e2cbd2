"""The steps of one process: as those of a rank of its job, and as traces."""

from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from types import MappingProxyType

from opentelemetry.proto.resource.v1.resource_pb2 import Resource

from otel_zernel.batch import Batch
from otel_zernel_libraries.training.hangs import RankSigns
from otel_zernel_processors.phases.alignment.job_steps import seed_of
from otel_zernel_processors.phases.alignment.rank_step import RankStep, RankSteps, first_number
from otel_zernel_processors.phases.config import PhasesConfig, ns
from otel_zernel_processors.phases.emit.durations import StepDurations
from otel_zernel_processors.phases.emit.merged_steps import StepMerger
from otel_zernel_processors.phases.emit.traces import TraceCandidate, TraceSampler, chosen_alone, trace_batches
from otel_zernel_processors.phases.results.measured import MeasuredProcess
from otel_zernel_processors.phases.scopes.timeline import ClosedStep


class ProcessSteps:
    """Numbers the steps of a process, and chooses those that may become traces."""

    def __init__(
        self,
        seed: str,
        pid: int,
        config: PhasesConfig,
        drop: Callable[[int, str], None],
        measured: MeasuredProcess,
        signs: RankSigns,
    ) -> None:
        """`seed` identifies the process. `drop` counts steps and spans beyond the limits. `measured` takes the steps of
        the first thread that trains, and `signs` all training steps."""
        self._seed, self._pid = seed, pid
        self._config = config.traces
        self._max_steps = config.max_spans
        self._drop = drop
        self._by_thread: defaultdict[int, RankSteps] = defaultdict(RankSteps)
        """The first thread that trains is the rank."""
        self._measured = measured
        self._signs = signs
        self._new: list[RankStep] = []
        self._traced: list[TraceCandidate] = []
        """The steps of the last interval that may become traces."""
        self._durations = StepDurations()
        self._merger = StepMerger(ns(config.interval)) if config.traces and config.traces.merge_rest else None
        merge = self._merger.add if self._merger else None
        self._sampler = TraceSampler(config.traces, seed, drop, merge) if config.traces else None
        self._run: str | None = None
        """Identifies the run of its job; None before its job has released a step."""

    def add(self, closed: ClosedStep, rank: int | None) -> None:
        """Adds the next step. `rank` is that of the process in a job of several ranks, else None."""
        step = closed.step
        if step.kind == "skipped":
            self._add_skipped(closed)
            return
        self._durations.add(step.kind, step.end - step.start, is_lossy=step.lossy)
        if step.trains and step.kind != "unfinished":
            self._signs.add_step(step.end / 1e9, (step.end - step.start) / 1e9, step.thread)
        steps = self._by_thread[step.thread]
        is_first = steps is next(iter(self._by_thread.values()))
        is_rank = rank is not None and is_first
        numbered = steps.next(closed, is_rank=is_rank)
        if is_first:
            self._measured.add(closed, numbered.number, numbered.met)
        if self._sampler:
            self._sampler.add(closed, numbered, is_rank=is_rank)
        if is_rank and len(self._new) < self._max_steps:
            self._new.append(numbered)
        elif is_rank:
            self._drop(1, "max_steps")

    def _add_skipped(self, closed: ClosedStep) -> None:
        """Adds steps without intervals. None of them is a trace of its own."""
        step = closed.step
        for kind, lasted, count in closed.repeated.durations:
            self._durations.add(kind, lasted, count)
        steps = self._by_thread[step.thread]
        number = steps.skip(step.skipped)
        if steps is next(iter(self._by_thread.values())):
            self._measured.add_skipped(step, closed.attribution.segments, number)
        if self._merger:
            self._merger.add(TraceCandidate(number, closed, f"{self._seed} {step.start} {number}"))

    def end_interval(self) -> StepDurations:
        """The durations of the steps of the interval that ends, whose traces are chosen now."""
        self._traced = self._sampler.pop_chosen() if self._sampler else []
        durations, self._durations = self._durations, StepDurations()
        return durations

    def exemplars(self, rank: int | None) -> list[TraceCandidate]:
        """The steps whose traces are certain. A job chooses the slowest steps of its ranks only later."""
        if rank is None:
            return self._traced
        run = self._run
        firsts = [
            (candidate, first_number(candidate.closed))
            for candidate in self._traced
            if candidate.is_sampled and run is not None
        ]
        named = [(candidate, first) for candidate, first in firsts if first and first.communicator]
        return [candidate.of_rank(rank, seed_of(0, first, "", run or "")) for candidate, first in named]

    def pop(self) -> tuple[list[RankStep], list[TraceCandidate]]:
        """The steps as a rank since the last call, and those of the last interval that may become traces."""
        popped = self._new, self._traced
        self._new, self._traced = [], []
        return popped

    def align(self, offset: int | None, run: str | None) -> None:
        """Sets the number of a meeting of its job minus that of its own (None if it is not aligned by time), and the
        text that identifies the job's run (None if that is not certain yet)."""
        self._run = run
        if self._sampler:
            self._sampler.offset = offset

    def name_cause(self, cause: str) -> None:
        """Sets the first cause of its job, for the traces that follow."""
        if self._sampler:
            self._sampler.cause = cause

    def merged(self, resource: Resource) -> Iterator[Batch]:
        """The spans of the merged steps of the interval."""
        if self._merger:
            yield from trace_batches((iter([span]) for span in self._merger.pop(self._pid)), resource)

    def own_traces(self, resource: Resource) -> Iterator[Batch]:
        """The traces of the last interval if no other rank is known."""
        _, candidates = self.pop()
        if self._config:
            yield from self.traces(resource, chosen_alone(candidates, self._config))

    def traces(
        self,
        resource: Resource,
        chosen: Iterable[TraceCandidate],
        job_number: int = 0,
        links: Mapping[str, Sequence[TraceCandidate]] = MappingProxyType({}),
    ) -> Iterator[Batch]:
        """The spans of these steps. `job_number` is that of the job's step, 0 without one. `links` are by the step's
        seed."""
        if sampler := self._sampler:
            spans = (
                sampler.trace_of(candidate, self._pid, job_number, links.get(candidate.seed, ()))
                for candidate in chosen
            )
            yield from trace_batches(spans, resource)
