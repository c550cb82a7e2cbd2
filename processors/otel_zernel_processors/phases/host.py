"""The processes and GPUs of one host, and its time."""

from collections import Counter, deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import replace

from opentelemetry.proto.resource.v1.resource_pb2 import Resource
from opentelemetry.proto.trace.v1.trace_pb2 import Span

from otel_zernel.batch import Batch
from otel_zernel.component import PAUSE, Context
from otel_zernel.otlp.points import key_values
from otel_zernel_processors.phases.config import PhasesConfig, ns
from otel_zernel_processors.phases.emit.metrics import Value, Writer
from otel_zernel_processors.phases.emit.report import report
from otel_zernel_processors.phases.emit.staleness import Told
from otel_zernel_processors.phases.ended_processes import LINGER_NS, Departed, Key
from otel_zernel_processors.phases.intake.host_clock import HostTime
from otel_zernel_processors.phases.intake.inputs import GPU, LOSSES, READING, Observation, scalars
from otel_zernel_processors.phases.intake.intervals import covers_process, mark_of, tells_death
from otel_zernel_processors.phases.intake.watermark import Readings
from otel_zernel_processors.phases.process import Identity, Process
from otel_zernel_processors.phases.results.energy import Gpu
from otel_zernel_processors.phases.scopes.attribution import PHASES

_MANY = 1000
"""More reports than this are not made up for after a silence."""
_READING_NS = 100_000_000
"""How long a reading may take: what is lost meanwhile is told with the next, which counts from the end of this one."""
_LOSSES = 64
_GPUS = 1024

Loss = tuple[int | None, int, int]
"""Of which process (None: of any) events were lost, and between which times (ns)."""


class Host:
    """Follows what is on one host."""

    def __init__(self, name: str, config: PhasesConfig, context: Context, admit: Callable[[], bool]) -> None:
        """`admit` says if there is room for another process."""
        self.name = name
        self.processes: dict[Key, Process] = {}
        self._config = config
        self._context = context
        self.time = HostTime(context.clock, ns(config.idle_timeout))
        self._admit = admit
        self._interval = ns(config.interval)
        self._due = 0
        self._ended: list[Process] = []
        self._departed = Departed()
        self._told = Told()
        self._gpus: dict[str, Gpu] = {}
        self._lost: dict[int | None, tuple[int, float]] = {}
        self._losses: deque[Loss] = deque(maxlen=_LOSSES)
        self._readings = Readings(config)
        self._transitions = 0
        self._is_told = False

    @property
    def known(self) -> int:
        """Up to when (ns) everything has come, but for what is late."""
        return self._readings.known(self.time.now)

    def rename(self, name: str) -> None:
        """Takes the name of the host, that is known now."""
        self.name = name
        for process in self.processes.values():
            process.identity = replace(process.identity, host=name)

    def follow(self, resource: Resource, spans: Sequence[Span]) -> None:
        """Takes the spans of one process."""
        process = self._process(_key(resource), resource)
        if process is None:
            self._context.drop(len(spans), "late" if self._departed.is_dead(_key(resource)) else "max_processes")
            return
        process.belongs_to(resource)
        process.ended = max((span.end_time_unix_nano for span in spans if tells_death(span)), default=process.ended)
        marks = [mark for span in spans if (mark := mark_of(span)) and self.time.sees(mark.start, mark.end)]
        process.add(marks)
        if len(marks) < len(spans) and (invalid := len(spans) - len(marks) - sum(map(covers_process, spans))):
            self._context.drop(invalid, "invalid")

    def observe(self, seen: Observation) -> None:
        """Takes a point of a process or a GPU."""
        if not self.time.sees(seen.time, seen.time):
            self._context.drop(1, "invalid")
            return
        if seen.name in GPU:
            if seen.gpu in self._gpus or (seen.gpu and len(self._gpus) < _GPUS):
                self._gpus.setdefault(seen.gpu, Gpu()).read(seen)
        elif seen.name == LOSSES:
            self._lose(seen)
        elif seen.name == READING:
            self._readings.seen(seen.start, seen.time)
        elif seen.pid is not None:
            process = self._process((seen.pid, _key(seen.resource)[1]), seen.resource)
            if process:
                gpu = self._gpu_of(process)
                spell = process.observe(seen, (gpu.utilization if gpu else None) or 0.0)
                if spell and not self._is_told and seen.time - process.since > ns(self._config.window):
                    self._tell(spell.end - spell.start)

    def due(self, until: int) -> Iterator[int]:
        """When (ns) reports are due by `until`, each to be made before the next."""
        if not self.time.since:
            return
        if not self._due:
            self._due = (self.time.since // self._interval + 1) * self._interval
        if until - self._due > _MANY * self._interval:
            yield self._due
            self._due = until // self._interval * self._interval
        while self._due <= until:
            yield self._due
            self._due += self._interval

    def is_over(self, wall: int) -> bool:
        """Whether it has no processes, and was quiet for as long as one may be, by the collector's time `wall` (ns)."""
        longest = ns(self._config.idle_timeout) + LINGER_NS
        return self.time.quiet_ns(wall) > longest and not self.processes

    def forget(self) -> Iterator[Batch]:
        """The ends of all series that are left."""
        for told in (*self._departed.forget(self.time.now + LINGER_NS), self._told):
            yield Batch(metrics=told.end(self.time.now))

    def advance(self, until: int) -> Iterator[Batch]:
        """Closes what is known by `until` (ns); yields only `PAUSE`."""
        for process in self.processes.values():
            for _ in process.advance(until):
                yield PAUSE

    def end(self) -> Iterator[Batch]:
        """Everything that is still open."""
        self._ended += self.processes.values()
        self.processes = {}
        for process in self._ended:
            for _ in process.end():
                yield PAUSE
        yield from self.report(self.time.now)

    def _process(self, key: Key, resource: Resource) -> Process | None:
        """The process of this key and resource; None if it has ended, or if there is no room for another.

        Where it is not said when the process was created, it is the one last seen with this pid.
        """
        pid, created = key
        known = self.processes.get((pid, created)) or self.processes.pop((pid, ""), None)
        if known is None and not created:
            of_pid = [process for (number, _), process in self.processes.items() if number == pid]
            known = max(of_pid, key=lambda process: process.last_seen, default=None)
            return known or self._new(pid, created, resource)
        if known is None:
            return self._new(pid, created, resource)
        if (pid, created) not in self.processes:  # who met it first did not say which it is
            self.processes[pid, created] = known
            known.belongs_to(resource)
        return known

    def _new(self, pid: int, created: str, resource: Resource) -> Process | None:
        if self._departed.is_dead((pid, created)) or not self._admit():
            return None
        process = Process(Identity(self.name, pid, created), resource, self._config, self._context)
        self.processes[pid, created] = process
        for loss in self._losses:
            _lose(process, loss)
        return process

    def _is_over(self, process: Process, now: int) -> bool:
        return 0 < process.ended < now or process.last_seen < now - ns(self._config.idle_timeout)

    def _retire(self, key: Key, now: int) -> Iterator[Batch]:
        process = self.processes.pop(key)
        self._departed.add(key, process.told, now, dead=process.ended > 0)
        for _ in process.end():
            yield PAUSE
        self._ended.append(process)

    def _lose(self, seen: Observation) -> None:
        """Notes a loss: it lies between the counter's last point (of a delta, its start) and this one."""
        since, before = self._lost.get(seen.pid, (seen.time - self._interval, 0.0))
        self._lost[seen.pid] = (seen.time, seen.value)
        if seen.delta:
            since, before = seen.start or since, 0.0
        if seen.value > before:
            self._losses.append((seen.pid, since - _READING_NS, seen.time))
            for process in self.processes.values():
                _lose(process, self._losses[-1])

    def _tell(self, lasted: int) -> None:
        """Says, once, if readings are further apart than phases are to be judged by signals.

        A job that begins has no scopes yet, so only one that has had none for a whole window is spoken of.
        """
        interval = self._config.signals.interval
        if lasted >= 2 * ns(interval):
            self._is_told = True
            self._context.logger.warning(
                "Phases by signals are judged every %.3g s, as often as counters come from %s: to judge them every "
                "%.3g s (signals.interval), set the ebpf receiver's interval to that",
                *(lasted / 1e9, self.name or "this host", interval),
            )

    def _gpu_of(self, process: Process) -> Gpu | None:
        if len(self._gpus) == 1 and not process.gpu:
            return next(iter(self._gpus.values()))
        return self._gpus.get(process.gpu)

    def report(self, now: int) -> Iterator[Batch]:
        """What is known by `now` (ns)."""
        yield from self.advance(now)
        yield from self._end_series(now)
        for key in [key for key, process in self.processes.items() if self._is_over(process, now)]:
            yield from self._retire(key, now)
        ended, self._ended = self._ended, []
        followed = [one for one in (*self.processes.values(), *ended) if 0 < one.since <= now]
        pids = {None, *(pid for pid, _ in self.processes)}
        self._lost = {pid: last for pid, last in self._lost.items() if pid in pids}
        yield from self._share_out(followed, now - ns(self._config.idle_timeout))
        for process in followed:
            yield from report(process, now, self._context)
        self._transitions += sum(process.account.transitions.total() for process in ended)
        if followed:
            yield from self._scheduler(now)

    def _end_series(self, now: int) -> Iterator[Batch]:
        """Of the processes that ended a while ago. One of the same pid has them now, if it has the same resource."""
        for told in self._departed.forget(now):
            if all(told.resource != process.told.resource for process in self.processes.values()):
                yield Batch(metrics=told.end(now))

    def _share_out(self, processes: Iterable[Process], at_latest: int) -> Iterator[Batch]:
        """Gives each process its part of what its GPU used."""
        users: dict[int, list[Process]] = {}
        for process in processes:
            gpu = self._gpu_of(process)
            if gpu and process.is_ml:  # a DataLoader worker inherits its trainer's local rank
                users.setdefault(id(gpu), []).append(process)
            process.history.forget(at_latest)
        for gpu in self._gpus.values():
            for _ in gpu.share_out(
                [(one.history, one.spent[one.account.source]) for one in users.get(id(gpu), [])], at_latest
            ):
                yield PAUSE

    def _scheduler(self, now: int) -> Iterator[Batch]:
        """The host as a whole, under the names that a scheduler's dashboards know."""
        writer = Writer({}, self.time.since, now)
        tasks = self.processes.values()
        ml = [process for process in tasks if process.is_ml]
        phases = Counter(process.account.phase for process in ml)
        spent: Counter[str] = Counter()
        for process in ml:
            spent.update(process.tally.phase_ns)
        whole = spent.total()
        counts: list[Value] = [({"type": "total"}, len(tasks)), ({"type": "ml"}, len(ml))]
        writer.gauge("zernel.scheduler.tasks", "", counts)
        transitions = self._transitions + sum(process.account.transitions.total() for process in tasks)
        writer.sum("zernel.scheduler.phase.transitions", "", [({}, transitions)])
        writer.gauge("zernel.scheduler.phase.tasks", "", [({"phase": phase}, phases[phase]) for phase in PHASES])
        shares: list[Value] = [({"phase": one}, 100.0 * spent[one] / whole if whole else 0.0) for one in PHASES]
        writer.gauge("zernel.scheduler.phase.time_pct", "", shares)
        resource = Resource(attributes=key_values({"host.name": self.name}))
        ends = Batch(metrics=self._told.tell(resource, writer.metrics, now))
        if ends.point_count:
            yield ends
        yield Batch(metrics=writer.data(resource))


def _key(resource: Resource) -> Key:
    named = scalars(resource.attributes)
    pid = named.get("process.pid", 0)
    return pid if isinstance(pid, int) else 0, str(named.get("process.creation.time", ""))


def _lose(process: Process, loss: Loss) -> None:
    pid, start, end = loss
    if pid in (None, process.identity.pid):
        process.lose(start, end)
