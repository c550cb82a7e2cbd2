"""One followed process: its timeline, its totals and its verdict."""

from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from copy import deepcopy
from types import MappingProxyType

from opentelemetry.proto.resource.v1.resource_pb2 import Resource

from otel_zernel.batch import Batch
from otel_zernel.component import Context
from otel_zernel_processors.phases.alignment.job_steps import seed_of
from otel_zernel_processors.phases.alignment.rank_step import RankStep, RankSteps
from otel_zernel_processors.phases.alignment.sequences import first_number
from otel_zernel_processors.phases.config import PhasesConfig, ns
from otel_zernel_processors.phases.emit.durations import StepDurations
from otel_zernel_processors.phases.emit.merged_steps import StepMerger
from otel_zernel_processors.phases.emit.metrics import Labels, metrics_data
from otel_zernel_processors.phases.emit.report import ProcessReport
from otel_zernel_processors.phases.emit.services import with_service
from otel_zernel_processors.phases.emit.staleness import StalenessTracker
from otel_zernel_processors.phases.emit.traces import TraceCandidate, TraceSampler, chosen_alone, trace_batches
from otel_zernel_processors.phases.intake.inputs import (
    KERNEL,
    MISSING_MARKS,
    NVML,
    THREAD_TIME,
    InputPoint,
    Scalars,
    scalars,
)
from otel_zernel_processors.phases.intake.intervals import ThreadInterval
from otel_zernel_processors.phases.intake.losses import LossPeriod
from otel_zernel_processors.phases.process_identity import ProcessIdentity
from otel_zernel_processors.phases.results.energy import EnergyHistory, GpuUsage
from otel_zernel_processors.phases.results.gpus import GpuUser
from otel_zernel_processors.phases.results.totals import PhaseTotals, Totals
from otel_zernel_processors.phases.results.verdict import MARKS, Verdict, VerdictTracker
from otel_zernel_processors.phases.scopes.timeline import ClosedStep, Timeline
from otel_zernel_processors.phases.signals.rules import PhasePeriod, SignalReader
from otel_zernel_processors.phases.signals.thread_states import ThreadStates


class TrainingProcess:
    """Follows one process from its first span or point to its last."""

    def __init__(self, identity: ProcessIdentity, resource: Resource, config: PhasesConfig, context: Context) -> None:
        self.identity = identity
        self.resource = with_service(resource)  # a copy: later components may edit the batch
        self.attributes: Scalars = scalars(self.resource.attributes)
        self._received = deepcopy(resource)
        self.totals = Totals(round(config.window / config.interval))
        self.window = PhaseTotals()
        """The sums over the window at the last report."""
        self.gpu = str(self.attributes.get("zernel.local_rank", ""))
        """The index of its GPU on the host: the GPU with its memory, else its local rank; empty if unknown."""
        self.first_seen = self.last_seen = 0
        """The times (ns) of its first and its latest data."""
        self.ended = 0
        """When (ns) it ended; 0 if no span reports its end."""
        self.series = StalenessTracker()
        self.has_new_verdict = False
        """Whether the last report changed the verdict."""
        self._config = config
        self._context = context
        self._timeline = Timeline(ns(config.bridge), config.max_spans, context.drop)
        self._signals = SignalReader(config.signals)
        self._thread_states = ThreadStates()
        self._durations = StepDurations()
        self._rank_steps: defaultdict[int, RankSteps] = defaultdict(RankSteps)
        """By thread. The first thread that trains is the rank."""
        self._new_steps: list[RankStep] = []
        self._traced: list[TraceCandidate] = []
        self._merger = StepMerger(ns(config.interval)) if config.traces and config.traces.merge_rest else None
        merge = self._merger.add if self._merger else None
        self._sampler = TraceSampler(config.traces, identity.seed, context.drop, merge) if config.traces else None
        self._verdict = VerdictTracker(config.verdict)
        self._missing_marks: frozenset[str] = frozenset()
        self._run: str | None = None
        """Identifies the run of its job; None before its job has released a step."""
        self._history = EnergyHistory()
        self._gpu_usage: defaultdict[str, GpuUsage] = defaultdict(GpuUsage)
        self._reported = 0

    @property
    def is_ml(self) -> bool:
        """Whether it uses PyTorch, CUDA or NCCL."""
        return self._timeline.has_scopes or self._signals.is_ml

    @property
    def rank(self) -> int | None:
        """Its rank in a job of several ranks; None if it trains alone, or if its rank is unknown."""
        rank, size = self.attributes.get("zernel.rank"), self.attributes.get("zernel.world_size", 1)
        return rank if isinstance(rank, int) and isinstance(size, int) and size > 1 else None

    @property
    def verdict(self) -> Verdict:
        """The current verdict."""
        return self._verdict.verdict

    @property
    def processed_until(self) -> int:
        """The time (ns) by which spans have ended that are late if they arrive now."""
        return self._timeline.until

    @property
    def missing_marks(self) -> frozenset[str]:
        """The marks that its PyTorch does not have; docs/spans.md lists them."""
        return self._missing_marks

    @property
    def gpu_user(self) -> GpuUser:
        """The process as a user of its GPU. Its share goes to the current source of phases."""
        return GpuUser(self.gpu, self._history, self._gpu_usage[self.totals.source])

    def is_over(self, now: int) -> bool:
        """Whether it ended before `now` (ns), or had no data for `idle_timeout`."""
        return 0 < self.ended < now or self.last_seen < now - ns(self._config.idle_timeout)

    def update_resource(self, resource: Resource) -> None:
        """Replaces the resource: the rank, for example, is known only once the process has joined its job."""
        if resource != self._received:
            self._received = deepcopy(resource)
            self.resource = with_service(resource)
            self.attributes = scalars(self.resource.attributes)
            self.gpu = self.gpu or str(self.attributes.get("zernel.local_rank", ""))

    def add_intervals(self, intervals: Iterable[ThreadInterval]) -> list[int]:
        """Adds intervals. Late ones, and those beyond `max_spans`, are dropped and counted. Returns when (ns) the late
        ones ended."""
        late: list[int] = []
        for interval in intervals:
            if interval.end > self.last_seen:
                self._update_times(interval.start, interval.end)
            if reason := self._timeline.add(interval):
                self._context.drop(1, reason)
                late += [interval.end] if reason == "late" else []
        return late

    def add_loss(self, period: LossPeriod) -> None:
        """Records a loss of events."""
        self._timeline.add_loss(period.start, period.end)

    def add_point(self, point: InputPoint, gpu: float) -> PhasePeriod | None:
        """Adds a point; returns the period that rules evaluated, if any. `gpu`: the utilization of its GPU, 0 to 1."""
        self._update_times(point.time, point.time)
        if point.name == MISSING_MARKS:
            marks = MARKS & {point.mark}
            self._missing_marks = self._missing_marks | marks if point.value else self._missing_marks - marks
            return None
        if point.gpu.isdecimal() and point.name in KERNEL | NVML:
            self.gpu = point.gpu
        period = self._signals.read(point, gpu)
        if point.name == THREAD_TIME:
            self._add_state(point)
        if period is None or self._source != "signals":
            return None
        self.totals.add_period(*period)
        self._history.add_period(*period)
        return period

    @property
    def _source(self) -> str:
        """The source of its phases."""
        if self._config.source != "auto":
            return self._config.source
        if self._timeline.has_passes:
            return "scopes"
        return "threads" if self._thread_states.is_known else "signals"

    def _add_state(self, point: InputPoint) -> None:
        period = self._thread_states.read(point)
        if period and self._source == "threads":
            self.totals.add_states(period)
            self._history.add_phases(period.start, period.by_phase)

    def end_level(self, point: InputPoint) -> None:
        """Ends a series of one of its gauges."""
        self._signals.end_level(point)

    def advance(self, until: int) -> None:
        """Closes the steps that are complete by `until` (ns), and later ones if too many intervals wait."""
        self._add_steps(self._timeline.advance(max(until, self._timeline.early_until())))

    def end(self) -> None:
        """Closes all steps, because the process has ended."""
        self.advance(self._timeline.last_end)
        self._add_steps(self._timeline.end())

    def forget_phases(self, before: int) -> None:
        """Removes the phases before this time (ns) that wait for samples of the GPU."""
        self._history.forget(before)

    def report(self, now: int) -> Iterator[Batch]:
        """Ends an interval at `now` (ns): staleness points and metrics. `traces` has the traces of the interval."""
        self.window = self.totals.close_interval()
        self.has_new_verdict = self._verdict.update(self.window, self._missing_marks)
        self._traced = self._sampler.pop_chosen() if self._sampler else []
        report = self._report()
        self._durations, self._reported = StepDurations(), now
        metrics = report.metrics(now)
        ends = Batch(metrics=self.series.update(self.resource, metrics, now))
        if ends.point_count:
            yield ends
        yield Batch(metrics=metrics_data(self.resource, metrics))
        if self._merger:
            yield from trace_batches((iter([one]) for one in self._merger.pop(self.identity.pid)), self.resource)

    def pop_steps(self) -> tuple[list[RankStep], list[TraceCandidate]]:
        """Its steps as a rank since the last call, and those of the last report that may become traces."""
        popped = self._new_steps, self._traced
        self._new_steps, self._traced = [], []
        return popped

    def align(self, offset: int | None, run: str | None) -> None:
        """Sets the number of a meeting of its job minus that of its own (None if it is not aligned by time), and the
        text that identifies the job's run (None if that is not certain yet)."""
        self._run = run
        if self._sampler:
            self._sampler.offset = offset

    def own_traces(self) -> Iterator[Batch]:
        """The traces of the last report's interval if no other rank is known."""
        _, candidates = self.pop_steps()
        if self._config.traces:
            yield from self.traces(chosen_alone(candidates, self._config.traces))

    def traces(
        self,
        chosen: Iterable[TraceCandidate],
        job_number: int = 0,
        links: Mapping[str, Sequence[TraceCandidate]] = MappingProxyType({}),
    ) -> Iterator[Batch]:
        """The spans of these steps. `job_number` is that of the job's step, 0 without one. `links` are by the step's
        seed."""
        if sampler := self._sampler:
            pid = self.identity.pid
            spans = (sampler.trace_of(one, pid, job_number, links.get(one.seed, ())) for one in chosen)
            yield from trace_batches(spans, self.resource)

    @property
    def _labels(self) -> Labels:
        return {"process.pid": self.identity.pid}

    @property
    def _exemplars(self) -> list[TraceCandidate]:
        """The steps whose traces are certain. A job chooses the slowest steps of its ranks only later."""
        if self.rank is None:
            return self._traced
        rank, run = self.rank, self._run
        firsts = [(one, first_number(one.closed)) for one in self._traced if one.is_sampled and run is not None]
        named = [(one, first) for one, first in firsts if first and first.communicator]
        return [one.of_rank(rank, seed_of(0, first, "", run or "")) for one, first in named]

    def _report(self) -> ProcessReport:
        return ProcessReport(
            labels=self._labels,
            first_seen=self.first_seen,
            interval_start=self._reported or self.first_seen,
            totals=self.totals,
            window=self.window,
            gpu_usage=self._gpu_usage,
            doubtful_ns=self._timeline.doubtful_ns,
            durations=self._durations,
            traced=self._exemplars,
            verdict=self._verdict.verdict.name,
        )

    def _update_times(self, start: int, end: int) -> None:
        self.first_seen = self.first_seen or start
        self.last_seen = max(self.last_seen, end)

    def _add_steps(self, steps: Iterable[ClosedStep]) -> None:
        for closed in steps:
            self.totals.add_step(closed)
            step = closed.step
            self._durations.add(step.kind, step.end - step.start, is_lossy=step.lossy)
            self._history.add(closed.attribution.segments)
            self._add_step(closed)

    def _add_step(self, closed: ClosedStep) -> None:
        steps = self._rank_steps[closed.step.thread]
        is_rank = self.rank is not None and steps is next(iter(self._rank_steps.values()))
        step = steps.next(closed, is_rank=is_rank)
        if self._sampler:
            self._sampler.add(closed, step, is_rank=is_rank)
        if is_rank and len(self._new_steps) < self._config.max_spans:
            self._new_steps.append(step)
        elif is_rank:
            self._context.drop(1, "max_steps")
