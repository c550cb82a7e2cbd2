"""The reports on processes, jobs and hosts: their metrics at the end of an interval."""

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

from opentelemetry.proto.metrics.v1.metrics_pb2 import Metric

from otel_zernel_libraries.training import semconv
from otel_zernel_libraries.training.causes import JOB_VERDICTS, VERDICTS, JobAnswer, verdict_of
from otel_zernel_libraries.training.ledger import Moment
from otel_zernel_libraries.training.names import PHASES
from otel_zernel_processors.phases.emit.answers import gains
from otel_zernel_processors.phases.emit.durations import StepDurations
from otel_zernel_processors.phases.emit.metrics import Labels, MetricWriter, Value, state_set
from otel_zernel_processors.phases.emit.traces import TraceCandidate
from otel_zernel_processors.phases.results.device import DeviceTimes
from otel_zernel_processors.phases.results.energy import GpuUsage
from otel_zernel_processors.phases.results.totals import PhaseTotals, RankTimes, Totals

_BY_SCOPES: Labels = {semconv.PHASE_SOURCE: "scopes"}
"""Only scopes show steps."""
_EVENT = (semconv.STEP_EVENT, semconv.POSITION, semconv.NCCL_OPERATION, semconv.COLLECTIVE_SIZE)
"""The attributes of the fields of `StepEvent`, in their order."""


@dataclass(frozen=True, slots=True)
class ProcessReport:
    """The data of one report on one process."""

    labels: Labels
    """Attributes of every point."""
    first_seen: int
    """The start (ns) of cumulative sums."""
    interval_start: int
    """The start (ns) of the interval that this report ends."""
    totals: Totals
    """Sums since the process was first seen."""
    window: PhaseTotals
    """Sums over the window."""
    gpu_usage: Mapping[str, GpuUsage]
    """By the source of the phases."""
    device: DeviceTimes
    doubtful_ns: int
    """Time of steps that were closed before the loss of events in them was known."""
    durations: StepDurations
    """Of the steps in the interval."""
    traced: Sequence[TraceCandidate]
    """The steps in the interval that become traces."""
    verdict: str
    answer: JobAnswer | None = None
    """The newest one, if it trains alone."""
    is_hung: bool | None = None
    """Whether it hangs; None if it is a rank of a job, or has not trained."""

    def metrics(self, now: int) -> list[Metric]:
        """The metrics with the time `now` (ns)."""
        writer = MetricWriter(self.labels, self.first_seen, now)
        self._write_phases(writer)
        if self.device.is_known:
            self._write_device(writer)
        if self.totals.steps:
            self._write_steps(writer)
            labels = {**self.labels, **_BY_SCOPES}
            durations = self.durations.metric(self.traced, labels, self.interval_start, now)
            writer.metrics += [durations] if durations.histogram.data_points else []
        writer.add(semconv.CAUSE_GAIN, (({**labels, **_BY_SCOPES}, gain) for labels, gain in gains(self.answer)))
        if self.is_hung is not None:
            writer.add(semconv.JOB_HUNG, [(_BY_SCOPES, int(self.is_hung))])
        states = state_set(semconv.VERDICT, VERDICTS, self.verdict)
        writer.add(semconv.VERDICT, (({**labels, **self._source}, value) for labels, value in states))
        return writer.metrics

    @property
    def _source(self) -> Labels:
        return {semconv.PHASE_SOURCE: self.totals.source}

    def _write_phases(self, writer: MetricWriter) -> None:
        totals, window = self.totals, self.window
        writer.add(semconv.PHASE_TIME, _seconds(totals.phase_ns.items(), semconv.PHASE, semconv.PHASE_SOURCE))
        details = (semconv.PHASE, semconv.PHASE_DETAIL, semconv.PHASE_SOURCE)
        writer.add(semconv.PHASE_DETAIL_TIME, _seconds(totals.detail_ns.items(), *details))
        writer.add(semconv.LEDGER_TIME, _by_moment(totals.ledger_ns, 1e9))
        if window.phase_ns.total():  # without any time there are no shares
            shares = (({semconv.PHASE: phase, **self._source}, window.fraction(phase)) for phase in PHASES)
            writer.add(semconv.PHASE_FRACTION, shares)
        counts = (({semconv.PHASE_SOURCE: by}, count) for by, count in sorted(totals.transitions.items()))
        writer.add(semconv.PHASE_TRANSITIONS, counts)
        energy = (
            ({semconv.PHASE: phase, semconv.PHASE_SOURCE: source}, joules)
            for source, usage in sorted(self.gpu_usage.items())
            for phase, joules in sorted(usage.items())
        )
        writer.add(semconv.PHASE_ENERGY, energy)

    def _write_device(self, writer: MetricWriter) -> None:
        writer.add(semconv.GPU_STARVED_TIME, _by_moment(self.device.starved_s))
        writer.add(semconv.GPU_BUSY_TIME, [(_BY_SCOPES, self.device.busy_s)])
        writer.add(semconv.GPU_UNDETERMINED_TIME, [(_BY_SCOPES, self.device.undetermined_s)])

    def _write_steps(self, writer: MetricWriter) -> None:
        totals, window = self.totals, self.window
        steps = (
            ({semconv.STEP_KIND: kind, **_boundary(by), **_BY_SCOPES}, count)
            for (kind, by), count in sorted(totals.steps.items())
        )
        writer.add(semconv.STEPS, steps)
        events = (
            ({**{key: text for key, text in zip(_EVENT, event, strict=True) if text}, **_BY_SCOPES}, count)
            for event, count in sorted(totals.events.items())
        )
        writer.add(semconv.STEP_EVENTS, events)
        for name, counts in (
            (semconv.STEPS_LOSSY, totals.lossy_steps),
            (semconv.STEPS_SKIPPED, totals.skipped_steps),
        ):
            kinds = (({semconv.STEP_KIND: kind, **_BY_SCOPES}, count) for kind, count in sorted(counts.items()))
            writer.add(name, kinds)
        lossy_times = _seconds(totals.lossy_detail_ns.items(), semconv.PHASE, semconv.PHASE_DETAIL)
        writer.add(semconv.PHASE_LOSSY_TIME, (({**labels, **_BY_SCOPES}, spent) for labels, spent in lossy_times))
        writer.add(semconv.PHASE_DOUBTFUL, [(_BY_SCOPES, self.doubtful_ns / 1e9)])
        writer.add(semconv.EPOCHS, [(_BY_SCOPES, totals.epochs)])
        writer.add(semconv.COLLECTIVE_OVERLAP, [(_BY_SCOPES, totals.overlap_ns / 1e9)])
        seconds = window.phase_ns.total() / 1e9
        writer.add(semconv.STEP_RATE, [(_BY_SCOPES, window.trained / seconds if seconds else 0.0)])
        writer.add(semconv.STEP_JITTER, [(_BY_SCOPES, window.jitter)])


def _seconds(spent_ns: Iterable[tuple[tuple[Any, ...], int]], *keys: str) -> Iterator[Value]:
    """The times (ns) in s, by attributes with these keys."""
    for values, spent in sorted(spent_ns):
        yield dict(zip(keys, values, strict=True)), spent / 1e9


def _by_moment(spent: Mapping[Moment, float], of_second: float = 1.0) -> Iterator[Value]:
    """The times in s by position and activity. `of_second`: the units of `spent` in a second."""
    for moment in sorted(spent, key=lambda moment: (moment.position, moment.activity)):
        about = {semconv.POSITION: moment.position, semconv.ACTIVITY: moment.activity, **_BY_SCOPES}
        yield about, spent[moment] / of_second


def _boundary(boundary: str) -> Labels:
    return {semconv.STEP_BOUNDARY: boundary} if boundary else {}


@dataclass(frozen=True, slots=True)
class JobReport:
    """The data of one report on a job of several ranks."""

    answer: JobAnswer | None
    times: RankTimes | None
    critical_ns: Mapping[tuple[int, str], int]
    """By rank and phase: the time (ns) of critical paths."""
    reported: int
    """Ranks with all data up to the time of the report."""
    size: int
    """All ranks of the job."""
    since: int
    """The start (ns) of cumulative sums."""

    def metrics(self, now: int) -> list[Metric]:
        """The metrics with the time `now` (ns)."""
        writer = MetricWriter({}, self.since, now)
        writer.add(semconv.JOB_VERDICT, state_set(semconv.JOB_VERDICT, JOB_VERDICTS, verdict_of(self.answer)))
        writer.add(semconv.CAUSE_GAIN, gains(self.answer))
        states = {"reported": self.reported, "missing": max(self.size - self.reported, 0)}
        writer.add(semconv.JOB_RANKS, (({semconv.JOB_RANK_STATE: state}, count) for state, count in states.items()))
        if self.times:
            lateness = (({semconv.RANK: rank}, late) for rank, late in self.times.lateness.items())
            writer.add(semconv.JOB_RANK_LATENESS, lateness)
            writer.add(semconv.JOB_COLLECTIVE_TRANSFER, [({}, self.times.transfer)])
            writer.add(semconv.JOB_STEP_DURATION, [({}, self.times.step)])
        writer.add(semconv.STEP_CRITICAL_PATH_TIME, _seconds(self.critical_ns.items(), semconv.RANK, semconv.PHASE))
        return writer.metrics


class Task(NamedTuple):
    """One process of a host."""

    is_ml: bool
    """Whether it uses PyTorch, CUDA or NCCL."""
    phase: str
    window: PhaseTotals


def scheduler_metrics(tasks: Sequence[Task], transitions: int, since: int, now: int) -> list[Metric]:
    """The metrics of a host as a whole with the time `now` (ns), under the names that dashboards of schedulers use.
    `transitions` counts those of all processes since `since` (ns)."""
    writer = MetricWriter({}, since, now)
    ml = [task for task in tasks if task.is_ml]
    phases = Counter(task.phase for task in ml)
    spent: Counter[str] = Counter()
    for task in ml:
        spent.update(task.window.phase_ns)
    whole = spent.total()
    writer.add(semconv.SCHEDULER_TASKS, [({"type": "total"}, len(tasks)), ({"type": "ml"}, len(ml))])
    writer.add(semconv.SCHEDULER_PHASE_TRANSITIONS, [({}, transitions)])
    writer.add(semconv.SCHEDULER_PHASE_TASKS, (({"phase": phase}, phases[phase]) for phase in PHASES))
    shares = (({"phase": phase}, 100.0 * spent[phase] / whole if whole else 0.0) for phase in PHASES)
    writer.add(semconv.SCHEDULER_PHASE_TIME_PCT, shares)
    return writer.metrics
