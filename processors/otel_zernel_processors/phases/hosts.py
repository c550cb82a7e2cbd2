"""All hosts whose data a phases processor gets: what it does with a batch, and with the passing of time."""

from collections.abc import Callable, Iterator, Sequence
from itertools import groupby

from opentelemetry.proto.trace.v1.trace_pb2 import ResourceSpans, ScopeSpans, Span, TracesData

from otel_zernel.batch import Batch
from otel_zernel.component import Context
from otel_zernel_libraries.freed_memory import give_back_memory
from otel_zernel_processors.phases.config import PhasesConfig, ns
from otel_zernel_processors.phases.emit.metrics import SCOPE
from otel_zernel_processors.phases.host import Host
from otel_zernel_processors.phases.intake.inputs import input_points, scalars
from otel_zernel_processors.phases.intake.intervals import SpanInput, read_spans
from otel_zernel_processors.phases.intake.records import process_records, without_process_records
from otel_zernel_processors.phases.jobs import Jobs
from otel_zernel_processors.phases.process import TrainingProcess

_PATIENCE = 10.0
"""Seconds without any data after which a warning is logged: a receiver may take some to attach."""
_LIVE_NS = 300_000_000_000
"""If the last data of a host is older than this, it is a recording, and only the time of its data counts."""

OtherSpans = list[tuple[ResourceSpans, ScopeSpans, Sequence[Span]]]
"""The spans of a batch that phases do not use, by resource and scope."""


class Hosts:
    """The hosts, their processes and jobs. The methods are those of a processor."""

    def __init__(self, config: PhasesConfig, context: Context) -> None:
        self._config, self._context = config, context
        self.by_name: dict[str, Host] = {}
        self._here: Host | None = None
        """The host of all data without `host.name`; None before the first of such data."""
        self._jobs = Jobs(config, context)
        self._lateness = ns(config.lateness)
        self._waited = 0.0
        """How long (s) it has waited for data, until it warns."""

    def process(self, batch: Batch) -> Iterator[Batch]:
        """Consumes the spans with the attribute `zernel.interval` and the log records about processes, and reads
        metrics. All else passes unchanged."""
        for point in input_points(batch.metrics):
            if host := self._host(point.host):
                host.add_point(point)
        rest: Batch | None = batch
        if self._config.source in ("auto", "scopes"):
            others = self._read(batch.spans)
            if others is not None and not self._config.pass_through:
                rest = _with_spans(batch, others)
            records = process_records(batch)
            for resource, record in records:
                if host := self._host(str(scalars(resource.attributes).get("host.name", ""))):
                    host.add_record(resource, record)
            if rest is not None and records and not self._config.pass_through:
                rest = without_process_records(rest)
        if rest is not None:
            yield rest
        yield from self._advance(lambda host: host.watermark)

    def tick(self, now_ns: int) -> Iterator[Batch]:
        """Advances the time of live hosts whose data has stopped."""
        waited, self._waited = self._waited, self._waited + self._config.interval
        if not self.by_name and waited < _PATIENCE <= self._waited:
            self._context.logger.warning(
                "No spans or metrics for phases have arrived yet: check that this pipeline has an ebpf receiver, and "
                "run `otel-zernel doctor` to check that it works"
            )
        for host in list(self.by_name.values()):
            if host.is_over(now_ns):
                yield from self._remove(host)
            silent = now_ns - ns(self._config.interval)
            if self._config.pace is not None:
                interval = ns(self._config.interval)
                host.clock.follow_replay(now_ns, self._config.pace, interval, self._lateness + interval)
            elif 0 < silent - host.clock.now < _LIVE_NS:
                host.clock.now = silent
        yield from self._advance(lambda host: host.watermark)

    def flush(self) -> Iterator[Batch]:
        """Closes all steps and makes the last reports."""
        yield from self._advance(lambda host: host.clock.now - self._lateness)
        hosts = sorted(self.by_name.values(), key=lambda host: host.name)
        for host in hosts:
            yield from host.end()
        now = max((host.clock.now for host in hosts), default=0)
        for host in hosts:
            is_whole = host.clock.heard > now - ns(self._config.interval)
            yield from self._jobs.add(self._reported(), host.name, host.clock, now, is_whole=is_whole)
        yield from self._jobs.end()
        self.by_name, self._here = {}, None

    def _read(self, spans: TracesData) -> OtherSpans | None:
        """Reads all spans; returns those without the attribute `zernel.interval`, or None if all spans are such.

        The traces of another phases processor repeat the spans of collectives and syncs. They pass unchanged.
        """
        others: OtherSpans = []
        used = 0
        for resource in spans.resource_spans:
            for scope in resource.scope_spans:
                own = scope.scope.name == SCOPE.name
                read = SpanInput(others=list(scope.spans)) if own else read_spans(scope.spans)
                if read.others:
                    others.append((resource, scope, read.others))
                if read.count:
                    used += read.count
                    self._add_spans(resource, read)
        return others if used else None

    def _add_spans(self, resource: ResourceSpans, spans: SpanInput) -> None:
        host = self._host(str(scalars(resource.resource.attributes).get("host.name", "")))
        if host:
            host.add_spans(resource.resource, spans)
        else:
            self._context.drop(spans.count, "max_processes")

    def _host(self, name: str) -> Host | None:
        """The host with this name, added if it is new; None if there is no room for another.

        Data without a name belongs to the only host known when the first of such data arrives, else to a host of its
        own. It stays there. If that host has no name yet, it gets the first name that arrives.
        """
        host = self.by_name.get(name) if name else self._here
        if host is None and len(self.by_name) == 1 and (not name or "" in self.by_name):
            (host,) = self.by_name.values()
            if name:
                host.rename(name)
                self.by_name = {name: host}
        if host is None and len(self.by_name) < self._config.max_processes:
            host = self.by_name[name] = Host(name, self._config, self._context, self._has_room)
        if not name:
            self._here = host
        return host

    def _remove(self, host: Host) -> Iterator[Batch]:
        del self.by_name[host.name]
        if host is self._here:
            self._here = None
        yield from host.end_series()

    def _has_room(self) -> bool:
        return sum(len(host.processes) for host in self.by_name.values()) < self._config.max_processes

    def _advance(self, watermark: Callable[[Host], int]) -> Iterator[Batch]:
        """The reports that are due on all hosts, in the order of time, so that the ranks of a job stay in step."""
        hosts = {host.name: host for host in self.by_name.values()}
        has_reported = False
        for due, name in sorted((due, name) for name, host in hosts.items() for due in host.due(watermark(host))):
            has_reported = True
            clock = hosts[name].clock
            yield from hosts[name].report(due)
            yield from self._jobs.add(self._reported(), name, clock, due, is_whole=clock.heard >= due)
            yield from self._jobs.advance()
        for host in hosts.values():
            host.advance(watermark(host))
        yield from self._jobs.advance()
        if has_reported:
            give_back_memory()  # the arrays of the answers: about 10 MB for 8 ranks

    def _reported(self) -> list[TrainingProcess]:
        """The processes in the last reports of all hosts."""
        return [process for host in self.by_name.values() for process in host.reported]


def _with_spans(batch: Batch, spans: OtherSpans) -> Batch | None:
    """The batch with only these spans; None if nothing remains."""
    others = batch.only(set(batch.signals) - {"traces"})
    if spans:
        passed = Batch(spans=_joined(spans))
        return Batch.join([others, passed]) if others.signals else passed
    return others if others.signals else None


def _joined(others: OtherSpans) -> TracesData:
    """The spans as one message."""
    data = TracesData()
    for _, of_resource in groupby(others, key=lambda item: id(item[0])):
        scopes = list(of_resource)
        resource = scopes[0][0]
        into = data.resource_spans.add(resource=resource.resource, schema_url=resource.schema_url)
        for _, scope, spans in scopes:
            into.scope_spans.add(scope=scope.scope, schema_url=scope.schema_url, spans=spans)
    return data
