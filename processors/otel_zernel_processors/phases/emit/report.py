"""The report on a process: its metrics at the end of an interval."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from opentelemetry.proto.metrics.v1.metrics_pb2 import Metric

from otel_zernel_libraries.training import PHASES, semconv
from otel_zernel_libraries.training.causes import VERDICTS, JobAnswer
from otel_zernel_libraries.training.ledger import Moment
from otel_zernel_processors.phases.emit.answers import gains
from otel_zernel_processors.phases.emit.durations import StepDurations
from otel_zernel_processors.phases.emit.metrics import Labels, MetricWriter, Value, state_set
from otel_zernel_processors.phases.emit.traces import TraceCandidate
from otel_zernel_processors.phases.results.device import DeviceTimes
from otel_zernel_processors.phases.results.energy import GpuUsage
from otel_zernel_processors.phases.results.totals import PhaseTotals, Totals

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
            writer.histogram(self.durations.metric(self.traced, labels, self.interval_start, now))
        found: list[Value] = [({**labels, **_BY_SCOPES}, gain) for labels, gain in gains(self.answer)]
        writer.gauge(semconv.CAUSE_GAIN, "s", found)
        if self.is_hung is not None:
            writer.gauge(semconv.JOB_HUNG, "", [(_BY_SCOPES, int(self.is_hung))])
        states = state_set(semconv.VERDICT, VERDICTS, self.verdict)
        writer.gauge(semconv.VERDICT, "", [({**labels, **self._source}, value) for labels, value in states])
        return writer.metrics

    @property
    def _source(self) -> Labels:
        return {semconv.PHASE_SOURCE: self.totals.source}

    def _write_phases(self, writer: MetricWriter) -> None:
        totals, window = self.totals, self.window
        times: list[Value] = [
            ({semconv.PHASE: phase, semconv.PHASE_SOURCE: source}, spent / 1e9)
            for (phase, source), spent in sorted(totals.phase_ns.items())
        ]
        writer.sum(semconv.PHASE_TIME, "s", times)
        details: list[Value] = [
            ({semconv.PHASE: phase, semconv.PHASE_DETAIL: detail, semconv.PHASE_SOURCE: source}, spent / 1e9)
            for (phase, detail, source), spent in sorted(totals.detail_ns.items())
        ]
        writer.sum(semconv.PHASE_DETAIL_TIME, "s", details)
        ledger: list[Value] = [
            ({semconv.POSITION: moment.position, semconv.ACTIVITY: moment.activity, **_BY_SCOPES}, spent / 1e9)
            for moment, spent in sorted(totals.ledger_ns.items(), key=_names)
        ]
        writer.sum(semconv.LEDGER_TIME, "s", ledger)
        if window.phase_ns.total():  # without any time there are no shares
            shares: list[Value] = [({semconv.PHASE: phase, **self._source}, window.fraction(phase)) for phase in PHASES]
            writer.gauge(semconv.PHASE_FRACTION, "1", shares)
        counts: list[Value] = [({semconv.PHASE_SOURCE: by}, n) for by, n in sorted(totals.transitions.items())]
        writer.sum(semconv.PHASE_TRANSITIONS, "{transition}", counts)
        usage = self.gpu_usage.items()
        writer.sum(semconv.PHASE_ENERGY, "J", _by_phase({source: share.joules for source, share in usage}))

    def _write_device(self, writer: MetricWriter) -> None:
        starved: list[Value] = [
            ({semconv.POSITION: moment.position, semconv.ACTIVITY: moment.activity, **_BY_SCOPES}, seconds)
            for moment, seconds in sorted(self.device.starved_s.items(), key=_names)
        ]
        writer.sum(semconv.GPU_STARVED_TIME, "s", starved)
        writer.sum(semconv.GPU_BUSY_TIME, "s", [(_BY_SCOPES, self.device.busy_s)])
        writer.sum(semconv.GPU_UNDETERMINED_TIME, "s", [(_BY_SCOPES, self.device.undetermined_s)])

    def _write_steps(self, writer: MetricWriter) -> None:
        totals, window = self.totals, self.window
        steps: list[Value] = [
            ({semconv.STEP_KIND: kind, **_boundary(by), **_BY_SCOPES}, n)
            for (kind, by), n in sorted(totals.steps.items())
        ]
        writer.sum(semconv.STEPS, "{step}", steps)
        events: list[Value] = [
            ({**{key: text for key, text in zip(_EVENT, event, strict=True) if text}, **_BY_SCOPES}, count)
            for event, count in sorted(totals.events.items())
        ]
        writer.sum(semconv.STEP_EVENTS, "{event}", events)
        lossy: list[Value] = [
            ({semconv.STEP_KIND: kind, **_BY_SCOPES}, n) for kind, n in sorted(totals.lossy_steps.items())
        ]
        writer.sum(semconv.STEPS_LOSSY, "{step}", lossy)
        skipped: list[Value] = [
            ({semconv.STEP_KIND: kind, **_BY_SCOPES}, n) for kind, n in sorted(totals.skipped_steps.items())
        ]
        writer.sum(semconv.STEPS_SKIPPED, "{step}", skipped)
        lossy_times: list[Value] = [
            ({semconv.PHASE: phase, semconv.PHASE_DETAIL: detail, **_BY_SCOPES}, spent / 1e9)
            for (phase, detail), spent in sorted(totals.lossy_detail_ns.items())
        ]
        writer.sum(semconv.PHASE_LOSSY_TIME, "s", lossy_times)
        writer.sum(semconv.PHASE_DOUBTFUL, "s", [(_BY_SCOPES, self.doubtful_ns / 1e9)])
        writer.sum(semconv.EPOCHS, "{epoch}", [(_BY_SCOPES, totals.epochs)])
        writer.sum(semconv.COLLECTIVE_OVERLAP, "s", [(_BY_SCOPES, totals.overlap_ns / 1e9)])
        seconds = window.phase_ns.total() / 1e9
        writer.gauge(semconv.STEP_RATE, "{step}/s", [(_BY_SCOPES, window.trained / seconds if seconds else 0.0)])
        writer.gauge(semconv.STEP_JITTER, "1", [(_BY_SCOPES, window.jitter)])


def _names(row: tuple[Moment, float]) -> tuple[str, str]:
    return row[0].position, row[0].activity


def _boundary(boundary: str) -> Labels:
    return {semconv.STEP_BOUNDARY: boundary} if boundary else {}


def _by_phase(usage: Mapping[str, Mapping[str, float]]) -> Iterator[Value]:
    for source, amounts in sorted(usage.items()):
        for phase, amount in sorted(amounts.items()):
            yield {semconv.PHASE: phase, semconv.PHASE_SOURCE: source}, amount
