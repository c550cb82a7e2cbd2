"""One host: its processes, its GPUs, and its time."""

import math
from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace

from opentelemetry.proto.logs.v1.logs_pb2 import LogRecord
from opentelemetry.proto.resource.v1.resource_pb2 import Resource

from otel_zernel.batch import Batch
from otel_zernel.component import Context
from otel_zernel.otlp.points import key_values
from otel_zernel.repeated import RepeatedByKey
from otel_zernel_libraries.training.span_attributes import MalformedSpan
from otel_zernel_libraries.training.stacks import ProcessStacks
from otel_zernel_processors.phases.config import PhasesConfig, ns
from otel_zernel_processors.phases.emit.metrics import metrics_data, stacks_without_step
from otel_zernel_processors.phases.emit.report import Task, scheduler_metrics
from otel_zernel_processors.phases.emit.services import OWN_SERVICE
from otel_zernel_processors.phases.emit.staleness import StalenessTracker
from otel_zernel_processors.phases.intake.host_clock import HostClock, Watermark
from otel_zernel_processors.phases.intake.inputs import FACTS, GPU, LOSSES, NVML, READING, InputPoint
from otel_zernel_processors.phases.intake.intervals import SpanInput
from otel_zernel_processors.phases.intake.losses import LateSpans, LossLog
from otel_zernel_processors.phases.intake.records import read_record
from otel_zernel_processors.phases.process import ProcessIdentity, TrainingProcess
from otel_zernel_processors.phases.process_registry import LINGER_NS, ProcessKey, ProcessRegistry, key_of
from otel_zernel_processors.phases.results.energy import HostGpus
from otel_zernel_processors.phases.signals.rules import PhasePeriod, uses_gpu

_MANY = 1000
"""After a pause in the data, at most this many missed reports are made up for."""


class ReportSchedule:
    """A report is due at every whole multiple of the interval."""

    def __init__(self, interval_ns: int) -> None:
        self._interval = interval_ns
        self._next = 0

    def due(self, since: int, until: int) -> Iterator[int]:
        """The times (ns) at which reports are due after `since`, the host's first time, up to `until`. Each time is
        yielded once, and a time counts as reported when the next one is requested."""
        if not since:
            return
        if not self._next:
            self._next = (since // self._interval + 1) * self._interval
        if until - self._next > _MANY * self._interval:
            yield self._next
            self._next = until // self._interval * self._interval
        while self._next <= until:
            yield self._next
            self._next += self._interval


class Host:
    """Follows the processes and GPUs of one host."""

    def __init__(self, name: str, config: PhasesConfig, context: Context, has_room: Callable[[], bool]) -> None:
        """`has_room` returns whether one more process may be followed."""
        self.name = name
        self.clock = HostClock(context.clock, ns(config.idle_timeout), is_replay=config.pace is not None)
        self._config = config
        self._context = context
        self._registry = ProcessRegistry(self._create, has_room)
        self.reported: list[TrainingProcess] = []
        """The processes in the last report: those that are followed, and those that ended before it."""
        self._ended: list[TrainingProcess] = []
        """Processes that ended since the last report."""
        self._stacks_without_step = stacks_without_step(context)
        self._gpus = HostGpus()
        self._late = LateSpans(context.logger, config.lateness)
        self._losses = LossLog(ns(config.interval))
        self._malformed = RepeatedByKey(context.clock.monotonic)
        self._watermark = Watermark(config)
        self._schedule = ReportSchedule(ns(config.interval))
        self._series = StalenessTracker()
        self._transitions = 0
        """Of the processes that ended."""
        self._has_warned = False

    @property
    def processes(self) -> dict[ProcessKey, TrainingProcess]:
        """The followed processes."""
        return self._registry.processes

    @property
    def watermark(self) -> int:
        """All data up to this time (ns) has arrived; what arrives later is late."""
        return self._watermark.at(self.clock.now)

    def rename(self, name: str) -> None:
        """Sets the name of the host once it is known."""
        self.name = name
        for process in self.processes.values():
            process.identity = replace(process.identity, host=name)

    def add_spans(self, resource: Resource, spans: SpanInput) -> None:
        """Adds spans of one process."""
        self._drop_malformed(spans.malformed)
        key = key_of(resource)
        if self._is_new_worker(key, resource, trains=spans.trains):
            return
        process = self._registry.find_or_add(key, resource)
        if process is None:
            is_dead = self._registry.ended.is_dead(key)
            self._context.drop(spans.count - spans.malformed.total(), "late" if is_dead else "max_processes")
            ends = [interval.end for interval in spans.intervals] if is_dead else []
            self._late.add(key[0], len(ends), self.clock.now - min(ends, default=0))
            return
        process.update_resource(resource)
        process.ended = spans.end.end_ns if spans.end else process.ended
        process.signs.add_end(spans.end)
        for span in spans.devices:
            if self.clock.accept(span.start_ns, span.end_ns):
                process.phases.device.add_records(span)
        intervals = self.clock.accepted(spans.intervals)
        late = process.add_intervals(intervals)
        self._late.add(key[0], len(late), self.clock.now - min(late, default=0))
        if invalid := spans.invalid + len(spans.intervals) - len(intervals):
            self._context.drop(invalid, "invalid")

    def _drop_malformed(self, malformed: Mapping[str, int]) -> None:
        """Counts spans and records by the attribute that they lack."""
        for attribute, count in malformed.items():
            self._context.drop(count, "malformed_span")
            if due := self._malformed.add(attribute, count):
                self._context.logger.warning(
                    "Dropped malformed spans (%d): %s is missing, or its type is not as in docs/development/spans.md",
                    due,
                    attribute,
                )

    def add_point(self, point: InputPoint) -> None:
        """Adds a point of a process, of a GPU or of the receiver."""
        if not self.clock.accept(point.time, point.time):
            self._context.drop(1, "invalid")
        elif point.name in GPU:
            self._gpus.read(point)
        elif point.name == LOSSES:
            self._add_loss(point)
        elif point.name == READING:
            self._watermark.add_reading(point.start, point.time)
        elif point.pid is not None and point.name in FACTS:
            if process := self._registry.find((point.pid, key_of(point.resource)[1])):
                process.measured.add_point(point)
        elif point.pid is not None:
            self._add_point_of_process(point, point.pid)

    def add_record(self, resource: Resource, record: LogRecord) -> None:
        """Adds a record about a process. Stacks do not make one."""
        try:
            content = read_record(record)
        except MalformedSpan as error:
            self._drop_malformed({str(error): 1})
            return
        time, key = record.time_unix_nano, key_of(resource)
        if not (time and self.clock.accept(time, time)):
            self._context.drop(1, "invalid")
        elif isinstance(content, ProcessStacks):
            if process := self._registry.find(key):
                process.measured.code.add(content, time)
                process.signs.add_stacks(content)
                self._stacks_without_step.add(process.measured.code.take_without_step())
            else:
                self._stacks_without_step.add(len(content.stacks))
        elif self._is_new_worker(key, resource, trains=False):
            return
        elif process := self._registry.find_or_add(key, resource):
            process.update_times(time, time)
            process.signs.add_threads(time / 1e9, content)

    def due(self, until: int) -> Iterator[int]:
        """The times (ns) of the reports that are due by `until`; see `ReportSchedule.due`."""
        return self._schedule.due(self.clock.since, until)

    def is_over(self, wall: int) -> bool:
        """Whether it has no processes, and no data arrived for `idle_timeout` and a minute. `wall` (ns) is the
        collector's time."""
        longest = ns(self._config.idle_timeout) + LINGER_NS
        return self.clock.quiet_ns(wall) > longest and not self.processes

    def end_series(self) -> Iterator[Batch]:
        """Staleness points for all remaining series."""
        for series in (*self._registry.ended.pop_expired(self.clock.now + LINGER_NS), self._series):
            yield Batch(metrics=series.end_all(self.clock.now))

    def advance(self, until: int) -> None:
        """Closes the steps that are complete by `until` (ns)."""
        for process in self.processes.values():
            process.advance(until)

    def end(self) -> Iterator[Batch]:
        """Ends all processes and makes the last report."""
        self._ended += self._registry.clear()
        for process in self._ended:
            process.end()
        yield from self.report(self.clock.now)

    def report(self, now: int) -> Iterator[Batch]:
        """The reports on all processes and on the host at `now` (ns)."""
        self.advance(now)
        self._late.log(self.name, now)
        yield from self._end_expired(now)
        for worker in self._registry.dismiss_workers():
            yield Batch(metrics=worker.series.end_all(now))
        for key in [key for key, process in self.processes.items() if process.is_over(now)]:
            self._retire(key, now)
        ended, self._ended = self._ended, []
        followed = [process for process in (*self.processes.values(), *ended) if 0 < process.first_seen <= now]
        self.reported = followed
        self._losses.keep_only({pid for pid, _ in self.processes})
        self._share_out(followed, now - ns(self._config.idle_timeout))
        for process in followed:
            yield from process.report(now)
        self._transitions += sum(process.phases.totals.transitions.total() for process in ended)
        if followed:
            yield from self._report_tasks(now)

    def _create(self, key: ProcessKey, resource: Resource) -> TrainingProcess:
        identity = ProcessIdentity(self.name, *key)
        process = TrainingProcess(identity, resource, self._config, self._context)
        process.advance(self._registry.ended.processed_until(key))
        for period in self._losses.of(identity.pid):
            process.phases.timeline.add_loss(period.start, period.end)
        return process

    def _add_loss(self, point: InputPoint) -> None:
        period = self._losses.add(point)
        for process in self.processes.values() if period else ():
            if period and period.concerns(process.identity.pid):
                process.phases.timeline.add_loss(period.start, period.end)

    def _add_point_of_process(self, point: InputPoint, pid: int) -> None:
        key = (pid, key_of(point.resource)[1])
        if math.isnan(point.value):
            if ended := self._registry.find(key):
                ended.phases.signals.end_level(point)
            return
        if self._is_new_worker(key, point.resource, trains=uses_gpu(point.name)):
            return
        process = self._registry.find_or_add(key, point.resource)
        if process is None:
            return
        if point.name in NVML:
            process.measured.add_point(point)
        period = process.add_point(point, self._gpus.utilization(process.gpu, point.time))
        if period and point.time - process.first_seen > ns(self._config.window):
            self._warn_of_rare_readings(period)

    def _is_new_worker(self, key: ProcessKey, resource: Resource, *, trains: bool) -> bool:
        """Whether the data is the first of a process that only serves one that trains. Such a process is not followed.

        `trains`: whether this data shows that the process trains itself.
        """
        if trains or self._registry.find(key):
            return False
        return self._registry.trainer_of(resource) is not None

    def _warn_of_rare_readings(self, period: PhasePeriod) -> None:
        """Logs one warning if readings are less frequent than `signals.interval`.

        A job that begins has no scopes yet, so only a process without scopes for a whole `window` counts.
        """
        interval, lasted = self._config.signals.interval, period.end - period.start
        if self._has_warned or lasted < 2 * ns(interval):
            return
        self._has_warned = True
        self._context.logger.warning(
            "Phases by signals are evaluated only every %.3g s, because counters of %s arrive only that often: to "
            "evaluate them every %.3g s (signals.interval), set the ebpf receiver's interval to that",
            *(lasted / 1e9, self.name or "this host", interval),
        )

    def _retire(self, key: ProcessKey, now: int) -> None:
        process = self._registry.retire(key, now)
        process.end()
        self._registry.ended.set_processed(key, process.phases.timeline.until, now)
        self._ended.append(process)

    def _end_expired(self, now: int) -> Iterator[Batch]:
        """Staleness points for processes that ended a minute ago. If another process has the same resource, their
        series continue."""
        for series in self._registry.ended.pop_expired(now):
            if all(series.resource != process.series.resource for process in self.processes.values()):
                yield Batch(metrics=series.end_all(now))

    def _share_out(self, processes: list[TrainingProcess], at_latest: int) -> None:
        """Divides each GPU's usage among the processes that use PyTorch, CUDA or NCCL.

        DataLoader workers inherit their trainer's local rank and do not count.
        """
        users = [process.phases.user_of(process.gpu) for process in processes if process.phases.is_ml]
        for process in processes:
            process.phases.history.forget(at_latest)
        self._gpus.share_out(users, at_latest)
        self._describe(processes)

    def _describe(self, processes: list[TrainingProcess]) -> None:
        """Gives each process what slows down its GPU, and the number of ranks beside it."""
        launchers = [process.launcher for process in processes if process.rank is not None]
        for process in processes:
            process.measured.ranks_here = max(launchers.count(process.launcher), 1)
        for gpu in {process.gpu for process in processes}:
            users = [process for process in processes if process.gpu == gpu]
            used = {user: part for user in users if (part := user.measured.gpu_utilization)} if gpu else {}
            for process in users:
                others = {user.identity.pid: part for user, part in used.items() if not process.works_with(user)}
                process.measured.gpu = self._gpus.facts(gpu, others)

    def _report_tasks(self, now: int) -> Iterator[Batch]:
        """The metrics of the host as a whole."""
        processes = self.processes.values()
        tasks = [Task(process.phases.is_ml, process.phases.totals.phase, process.window) for process in processes]
        transitions = self._transitions + sum(process.phases.totals.transitions.total() for process in processes)
        metrics = scheduler_metrics(tasks, transitions, self.clock.since, now)
        about = {"host.name": self.name, "service.name": OWN_SERVICE, "service.instance.id": self.name}
        resource = Resource(attributes=key_values(about))
        ends = Batch(metrics=self._series.update(resource, metrics, now))
        if ends.point_count:
            yield ends
        yield Batch(metrics=metrics_data(resource, metrics))
