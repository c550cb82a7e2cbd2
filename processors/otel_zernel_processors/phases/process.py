"""One followed process: what it is, how long it lives, and its reports."""

from collections.abc import Iterator, Sequence
from copy import deepcopy
from dataclasses import dataclass

from opentelemetry.proto.resource.v1.resource_pb2 import Resource

from otel_zernel.batch import Batch
from otel_zernel.component import Context
from otel_zernel_libraries.training import semconv
from otel_zernel_libraries.training.causes import JobAnswer, verdict_of_rank
from otel_zernel_libraries.training.hangs import Rank, RankSigns
from otel_zernel_libraries.training.verdicts import ESSENTIAL_MARKS
from otel_zernel_libraries.training.words import MARK_NAMES
from otel_zernel_processors.phases.config import PhasesConfig, ns
from otel_zernel_processors.phases.emit.answers import (
    ANSWERS_NS,
    LatestAnswer,
    answer_batch,
    code_batch,
    profiles_batch,
)
from otel_zernel_processors.phases.emit.metrics import Labels, metrics_data
from otel_zernel_processors.phases.emit.report import ProcessReport
from otel_zernel_processors.phases.emit.services import with_service
from otel_zernel_processors.phases.emit.staleness import StalenessTracker
from otel_zernel_processors.phases.hang_watch import HangWatch
from otel_zernel_processors.phases.intake.inputs import KERNEL, MISSING_MARKS, NVML, InputPoint, Scalars, scalars
from otel_zernel_processors.phases.intake.intervals import ThreadInterval
from otel_zernel_processors.phases.process_phases import ProcessPhases
from otel_zernel_processors.phases.process_steps import ProcessSteps
from otel_zernel_processors.phases.results.measured import MeasuredProcess
from otel_zernel_processors.phases.results.totals import PhaseTotals
from otel_zernel_processors.phases.signals.rules import PhasePeriod


@dataclass(frozen=True, slots=True)
class ProcessIdentity:
    """Identifies a process. A pid may be reused, but not with the same creation time."""

    host: str
    pid: int
    created: str

    @property
    def seed(self) -> str:
        """The text whose hashes are the ids of traces. A change of its form would change all ids."""
        return f"Identity(host={self.host!r}, pid={self.pid!r}, created={self.created!r})"


class TrainingProcess:
    """Follows one process from its first span or point to its last."""

    def __init__(self, identity: ProcessIdentity, resource: Resource, config: PhasesConfig, context: Context) -> None:
        self.identity = identity
        self.resource = with_service(resource)  # a copy: later components may edit the batch
        self.attributes: Scalars = scalars(self.resource.attributes)
        self._received = deepcopy(resource)
        self._labels: Labels = {"process.pid": identity.pid}
        self.phases = ProcessPhases(config, context.drop)
        self.measured = MeasuredProcess(
            ns(config.window), self.phases.device, context.drop, has_code=config.code, has_profiles=config.profiles
        )
        self.signs = RankSigns()
        self.hangs = HangWatch()
        """Whether it hangs, if it trains alone."""
        self.steps = ProcessSteps(identity.seed, identity.pid, config, context.drop, self.measured, self.signs)
        self.window = PhaseTotals()
        """The sums over the window at the last report."""
        self.gpu = str(self.attributes.get(semconv.LOCAL_RANK, ""))
        """The index of its GPU on the host: the GPU with its memory, else its local rank; empty if unknown."""
        self.first_seen = self.last_seen = 0
        """The times (ns) of its first and its latest data."""
        self.ended = 0
        """When (ns) it ended; 0 if no span reports its end."""
        self.series = StalenessTracker()
        self.verdict = "none"
        self.has_new_verdict = False
        """Whether the last report changed the verdict, if it trains alone."""
        self.missing_marks: frozenset[str] = frozenset()
        """The marks that its PyTorch does not have; docs/development/spans.md lists them."""
        self._idle_ns, self._window_ns = ns(config.idle_timeout), ns(config.window)
        self._latest = LatestAnswer(self._window_ns)
        self._drop = context.drop
        self._emits_code = config.code
        self._reported = self._code_sent = 0

    @property
    def rank(self) -> int | None:
        """Its rank in a job of several ranks; None if it trains alone, or if its rank is unknown."""
        rank, size = self.attributes.get(semconv.RANK), self.attributes.get(semconv.WORLD_SIZE, 1)
        return rank if isinstance(rank, int) and isinstance(size, int) and size > 1 else None

    @property
    def launcher(self) -> object:
        """The pid of the process that has started it; None if it is not known."""
        return self.attributes.get("process.parent_pid")

    def works_with(self, other: "TrainingProcess") -> bool:
        """Whether another process belongs to its work: itself, a rank of the same launcher, its parent or its child."""
        are_ranks = self.rank is not None and other.rank is not None and self.launcher == other.launcher
        is_kin = self.launcher == other.identity.pid or other.launcher == self.identity.pid
        return other is self or are_ranks or is_kin

    @property
    def answer(self) -> JobAnswer | None:
        """The latest answer on the process as if it trained alone."""
        return self._latest.answer

    def is_over(self, now: int) -> bool:
        """Whether it ended before `now` (ns), or had no data for `idle_timeout`."""
        return 0 < self.ended < now or self.last_seen < now - self._idle_ns

    def update_resource(self, resource: Resource) -> None:
        """Replaces the resource: the rank, for example, is known only once the process has joined its job."""
        if resource != self._received:
            self._received = deepcopy(resource)
            self.resource = with_service(resource)
            self.attributes = scalars(self.resource.attributes)
            self.gpu = self.gpu or str(self.attributes.get(semconv.LOCAL_RANK, ""))

    def add_intervals(self, intervals: Sequence[ThreadInterval]) -> list[int]:
        """Adds intervals. Late ones, and those beyond `max_spans`, are dropped and counted. Returns when (ns) the late
        ones ended."""
        late: list[int] = []
        add = self.phases.timeline.add
        for interval in intervals:
            if reason := add(interval):
                self._drop(1, reason)
                late += [interval.end] if reason == "late" else []
        if intervals:
            latest = max([interval.end for interval in intervals])
            self.signs.add_mark(latest / 1e9)
            self.update_times(intervals[0].start, latest)
        return late

    def add_point(self, point: InputPoint, gpu: float) -> PhasePeriod | None:
        """Adds a point; returns the period that rules evaluated, if any. `gpu`: the utilization of its GPU, 0 to 1."""
        self.update_times(point.time, point.time)
        if point.name == MISSING_MARKS:
            if point.is_sample:  # the library has it
                return None
            marks = MARK_NAMES.keys() & {point.mark}
            self.missing_marks = self.missing_marks | marks if point.value else self.missing_marks - marks
            return None
        if point.gpu.isdecimal() and point.name in KERNEL | NVML:
            self.gpu = point.gpu
        return self.phases.add_point(point, gpu)

    def as_rank(self, now: int) -> Rank:
        """Its signs at `now` (ns), for the decision whether its job hangs."""
        return Rank(self.rank, self.identity.host, self.identity.pid, self.signs, now / 1e9)

    def advance(self, until: int) -> None:
        """Closes the steps that are complete by `until` (ns), and later ones if too many intervals wait."""
        for closed in self.phases.advance(until):
            self.steps.add(closed, self.rank)

    def end(self) -> None:
        """Closes all steps, because the process has ended."""
        for closed in self.phases.end():
            self.steps.add(closed, self.rank)
        self.measured.code.finish()

    def report(self, now: int) -> Iterator[Batch]:
        """Ends an interval at `now` (ns): staleness points, metrics and merged steps. `steps` has the traces."""
        totals = self.phases.totals
        self.window = totals.close_interval()
        self.phases.device.close()
        answers = []
        if self.rank is None:
            answers = list(self.answers(now))
            answers += self.hangs.report([self.as_rank(now)], 1, self.resource, self.identity.seed, now)
            self.has_new_verdict = self.judge(self.answer)
        durations = self.steps.end_interval()
        report = ProcessReport(
            labels=self._labels,
            first_seen=self.first_seen,
            interval_start=self._reported or self.first_seen,
            totals=totals,
            window=self.window,
            gpu_usage=self.phases.gpu_usage,
            device=self.phases.device,
            doubtful_ns=self.phases.timeline.doubtful_ns,
            durations=durations,
            traced=self.steps.exemplars(self.rank),
            verdict=self.verdict,
            is_hung=self.hangs.hang is not None if self.rank is None and self.signs.moved else None,
            answer=self.answer if self.rank is None or now - self._latest.asked < 2 * ANSWERS_NS else None,
        )
        self._reported = now
        metrics = report.metrics(now)
        ends = Batch(metrics=self.series.update(self.resource, metrics, now))
        if ends.point_count:
            yield ends
        yield Batch(metrics=metrics_data(self.resource, metrics))
        yield from self.steps.merged(self.resource)
        yield from answers
        if self._emits_code and (now - self._code_sent >= ANSWERS_NS or self.phases.device.is_over):
            self._code_sent = now
            if code := self.measured.code.times:
                yield code_batch(code, self.resource, now)
        if newest := self.measured.code.take_newest():
            yield profiles_batch(newest.code, self.resource, newest.start, newest.end)

    def judge(self, answer: JobAnswer | None) -> bool:
        """Sets the verdict by an answer on the process, or on its job; returns whether it changed."""
        verdict = verdict_of_rank(answer, self.rank)
        self.steps.name_cause(answer.first.cause if answer and answer.first else "")
        if not (answer and answer.causes) and not ESSENTIAL_MARKS.isdisjoint(self.missing_marks):
            verdict = "marks_missing"
        before, self.verdict = self.verdict, verdict
        return verdict != before

    def answers(self, now: int) -> Iterator[Batch]:
        """The causes of the process as if it trained alone, every few seconds and at its end."""
        if not self._latest.is_due(now) and not self.phases.device.is_over:
            return
        size = self.attributes.get(semconv.WORLD_SIZE, 1)
        since = now - 3 * self._window_ns  # as long as the window of a process with slow steps
        answer = self.measured.answer(size if isinstance(size, int) else 1, self.rank, since, self.answer)
        if told := self._latest.add(answer, now, is_last=self.phases.device.is_over):
            yield answer_batch(told, self.resource, now)

    def update_times(self, start: int, end: int) -> None:
        """Notes data of this time (ns)."""
        self.first_seen = self.first_seen or start
        self.last_seen = max(self.last_seen, end)
