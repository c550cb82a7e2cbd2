"""One job: the verdict on its ranks, its critical path and its traces."""

from collections import Counter, defaultdict, deque
from collections.abc import Iterator, Mapping

from opentelemetry.proto.metrics.v1.metrics_pb2 import Metric
from opentelemetry.proto.resource.v1.resource_pb2 import Resource

from otel_zernel.batch import Batch
from otel_zernel_libraries.training import semconv
from otel_zernel_libraries.training.causes import verdict_of
from otel_zernel_processors.phases.alignment.job_steps import JobStep, RankOrigin
from otel_zernel_processors.phases.config import PhasesConfig, ns
from otel_zernel_processors.phases.emit.answers import LatestAnswer, answer_batch
from otel_zernel_processors.phases.emit.metrics import MetricWriter, metrics_data
from otel_zernel_processors.phases.emit.report import JobReport
from otel_zernel_processors.phases.emit.staleness import StalenessTracker
from otel_zernel_processors.phases.hang_watch import HangWatch
from otel_zernel_processors.phases.intake.host_clock import HostClock
from otel_zernel_processors.phases.job_log import JobLog
from otel_zernel_processors.phases.job_traces import JobTraces
from otel_zernel_processors.phases.rank_reports import HostReport, RankReport, Run, by_process
from otel_zernel_processors.phases.results.measured import answer_over_ranks, most_edges
from otel_zernel_processors.phases.results.totals import compare

_MEETINGS = 4_096
"""Steps of a job that its causes may follow from, at most."""


_AFTER_NS = 1_000_000
"""From the last report of a job to its end. A backend keeps one value of a series for each ms."""


class FollowedJob:
    """Follows the ranks of one job that are known to this collector.

    Each host reports its ranks in its own time. The job has one report for each time: once all ranks are in it, or once
    the first host that reported it is further by `lateness`.
    """

    def __init__(self, job: tuple[str, str], config: PhasesConfig, log: JobLog) -> None:
        """`job` is the attribute that names the job, and its value."""
        self._config = config
        self._name, self._value = "=".join(job), job[1]
        self._log = log
        self._size = 1
        self._resource = Resource()
        self._runs = [Run(self._name)]
        """The current run of the job, and before it the one that it has replaced: its last steps may still arrive."""
        self._traces = JobTraces(config.traces) if config.traces else None
        self._critical: Counter[tuple[int, str]] = Counter()
        """By rank and phase: the time (ns) of critical paths."""
        self._since = 0
        self._arrived: list[HostReport] = []
        """The hosts' reports that are not part of a report of the job yet."""
        self._due: dict[int, tuple[HostClock, int]] = {}
        """By the time of a report: the host that reported it first, and when (ns, by its clock) the wait is over."""
        self._hosts: dict[HostClock, int] = {}
        """The time (ns) of the last report of each host with ranks of the job."""
        self._known: set[int] = set()
        """The ranks that have been in a report since the job has this size."""
        self._latest: dict[HostClock, HostReport] = {}
        """The reports of the hosts in the job's last report."""
        self._meetings: deque[Mapping[int, int]] = deque(maxlen=_MEETINGS)
        """Of each of the latest steps: when (ns) each rank left its last collective; 0 if that is not known."""
        self._answered = LatestAnswer(ns(config.window))
        self._hangs = HangWatch()
        self._is_over = False
        self._gains = StalenessTracker()
        self._reported = self._waited_until = 0
        """The times (ns) of the last report, and of the last one that some rank was late for."""

    def describe(self, size: int, resource: Resource) -> None:
        """Sets the number of the job's ranks, also of those at other collectors, and the resource of its metrics and
        spans."""
        if size != self._size:
            self._known.clear()
            # not all ranks may be known of each
            self._meetings = deque(self._meetings, maxlen=min(2 * most_edges(size), _MEETINGS))
        self._size, self._resource = size, resource

    def add(self, report: HostReport) -> None:
        """Adds the report of one host. A host without ranks of the job is waited for no more."""
        if report.ranks:
            self._hosts[report.clock] = report.now
            if report.now <= self._waited_until:
                self._log_late(report)
        elif self._hosts.pop(report.clock, None) is None and not report.former:
            return
        self._known |= report.ranks.keys()
        self._arrived.append(report)
        if report.now > self._reported:
            self._due.setdefault(report.now, (report.clock, report.clock.now + ns(self._config.lateness)))

    def advance(self) -> Iterator[Batch]:
        """The reports that wait for no rank any more, and the traces of steps that arrived after their report."""
        due = [time for time in self._due if self._is_complete(time) or self._is_overdue(time)]
        yield from self._report(max(due, default=0))

    def end(self) -> Iterator[Batch]:
        """The remaining reports, and the traces of the steps that still wait for a rank."""
        self._is_over = True  # the last report has all steps
        yield from self._report(max(self._due, default=0))
        is_answered = self._answered.asked == self._reported and self._answered.is_told and not self._arrived
        yield from self._align(max((report.now for report in self._arrived), default=0))
        for run in self._runs:
            yield from self._finish(run.steps.end())
        if not is_answered:
            yield from self._answer(self._reported)
        after = self._reported + _AFTER_NS
        yield from self._end_gains([], after)
        if self._hangs.hang or self._hangs.stop:
            yield from self._report_hang(after)

    def _log_late(self, report: HostReport) -> None:
        """Logs that a report of the job could not wait for this one."""
        host = next(report.processes).identity.host
        if report.clock.heard < report.clock.now:
            self._log.log_silent(self._value, host, report.clock.heard)
        else:
            self._log.log_late(self._value, host, self._config.lateness)

    def _is_complete(self, time: int) -> bool:
        return len(self._known) >= self._size and all(last >= time for last in self._hosts.values())

    def _is_overdue(self, time: int) -> bool:
        clock, until = self._due[time]
        return clock.now > until

    def _report(self, until: int) -> Iterator[Batch]:
        """Makes the reports up to `until` (ns)."""
        yield from self._align(self._reported)
        for time in sorted(time for time in self._due if time <= until):
            del self._due[time]
            self._reported = time
            self._waited_until = self._waited_until if self._is_complete(time) else time
            yield from self._align(time)
            yield from self._compare(time)

    def _align(self, now: int) -> Iterator[Batch]:
        """Aligns the steps of the hosts' reports up to `now` (ns), and yields the traces."""
        arrived = [report for report in self._arrived if report.now <= now]
        if not arrived:
            return
        self._arrived = [report for report in self._arrived if report.now > now]
        self._latest |= {report.clock: report for report in sorted(arrived, key=lambda report: report.now)}
        reports = by_process(rank for report in arrived for rank in (*report.former, *report.ranks.values()))
        of_run: defaultdict[Run, dict[int, RankReport]] = defaultdict(dict)
        for report in reports:
            if self._runs[-1].is_replaced_by(report):
                self._runs.append(Run(self._name))
                self._meetings.clear()
            if run := next((run for run in reversed(self._runs) if not run.is_after(report)), None):
                run.members[report.rank] = report.process
                of_run[run][report.rank] = report
        for run in self._runs:
            yield from self._align_ranks(run, of_run[run], now)
        for run in self._runs[:-2]:
            yield from self._finish(run.steps.end())
        del self._runs[:-2]

    def _align_ranks(self, run: Run, ranks: Mapping[int, RankReport], now: int) -> Iterator[Batch]:
        """Aligns the new steps of ranks of one run."""
        if self._traces:
            self._traces.hold({rank: (of_rank.process, of_rank.candidates) for rank, of_rank in ranks.items()}, now)
        members = {rank: process.identity for rank, process in run.members.items()}
        origins = {rank: RankOrigin(identity.host, identity.seed) for rank, identity in members.items()}
        run.steps.size = self._size
        if not run.steps.has_ids:
            run.steps.run = run.identity(self._size)
        steps, alone = run.steps.update({rank: of_rank.steps for rank, of_rank in ranks.items()}, origins, now)
        for rank, of_rank in ranks.items():
            of_rank.process.steps.align(run.steps.offsets.get(rank), run.steps.run if run.steps.has_ids else None)
        yield from self._finish(steps)
        if self._traces:
            yield from self._traces.of_ranks(alone)

    def _compare(self, now: int) -> Iterator[Batch]:
        """The metrics at `now` (ns). Ranks whose data of this interval is missing count with their last report."""
        oldest = now - ns(self._config.window)
        self._latest = {
            clock: report_ for clock, report_ in self._latest.items() if report_.ranks and report_.now > oldest
        }
        ranks = {rank: report for comparison in self._latest.values() for rank, report in comparison.ranks.items()}
        since = now - ns(self._config.interval)
        of_now = (comparison for comparison in self._latest.values() if comparison.now == now and comparison.is_whole)
        present = {
            rank
            for comparison in of_now
            for rank, report in comparison.ranks.items()
            if report.process.last_seen >= since
        }
        if self._is_over or self._answered.is_due(now):
            yield from self._answer(now)
        yield from self._report_hang(now)
        if len(ranks) < 2:
            self._answered = LatestAnswer(ns(self._config.window))
            yield from self._end_gains([], now)
            return
        self._since = self._since or min(report.process.first_seen for report in ranks.values())
        times = compare({rank: report.window for rank, report in ranks.items()})
        report = JobReport(self._answered.answer, times, self._critical, len(present), self._size, self._since)
        metrics = report.metrics(now)
        yield from self._end_gains([metric for metric in metrics if metric.name == semconv.CAUSE_GAIN], now)
        yield Batch(metrics=metrics_data(self._resource, metrics))

    def _report_hang(self, now: int) -> Iterator[Batch]:
        """Whether the job hangs. Its ranks are those of the current run, also the dead ones."""
        members = self._runs[-1].members.values()
        ranks = [member.as_rank(now) for member in members if member.ended or not member.is_over(now)]
        hang = list(self._hangs.report(ranks, self._size, self._resource, self._name, now))
        writer = MetricWriter({}, 0, now)
        writer.add(semconv.JOB_HUNG, [({}, int(self._hangs.hang is not None))])
        yield Batch(metrics=metrics_data(self._resource, writer.metrics))
        yield from hang  # a 0 of the metric ends the stop before
        if self._hangs.has_changed:
            self._log.log_hang(self._value, self._hangs, now)

    def _end_gains(self, metrics: list[Metric], now: int) -> Iterator[Batch]:
        """The ends of the gains of causes that are gone. `metrics` has those that are left."""
        ends = Batch(metrics=self._gains.update(self._resource, metrics, now))
        if ends.point_count:
            yield ends

    def _answer(self, now: int) -> Iterator[Batch]:
        """The causes of the job; those of each rank if their steps have not met."""
        processes = {rank: of_rank.process for host in self._latest.values() for rank, of_rank in host.ranks.items()}
        measured = {rank: process.measured for rank, process in sorted(processes.items())}
        since = now - 3 * ns(self._config.window)
        before = self._answered.answer
        if len(measured) > 1:
            new_answer = answer_over_ranks(measured, self._meetings, self._size, since, before)
            segments = sum(ledger.segments for ledger in measured.values())
            if told := self._answered.add(new_answer, now, segments, is_last=self._is_over):
                yield answer_batch(told, self._resource, now)
        latest = self._answered.answer
        answer = None if latest and latest.unknown else latest
        if answer is None:
            for process in processes.values():
                yield from process.answers(now)
        changed = {rank for rank, process in processes.items() if process.judge(answer or process.answer)}
        if answer is None:
            self._log.log_ranks(self._value, processes, changed)
        elif verdict_of(answer) != verdict_of(before):
            self._log.log_job(self._value, answer)

    def _finish(self, steps: list[JobStep]) -> Iterator[Batch]:
        for step in steps:
            self._add_path(step)
            self._meetings.append({rank: step_.met for rank, step_ in step.ranks.items()})
        if self._traces:
            yield from self._traces.of_steps(steps, self._resource, self._size)

    def _add_path(self, step: JobStep) -> None:
        path = step.critical_path if len(step.ranks) == self._size else None
        if path:
            self._critical.update({(path.rank, phase): spent for phase, spent in path.phase_ns.items()})
