"""The phases processor: spans and signals of training processes in, their phases out."""

from collections.abc import Callable, Generator, Iterator

from opentelemetry.proto.trace.v1.trace_pb2 import TracesData

from otel_zernel.batch import Batch
from otel_zernel.component import PAUSE, Context, Processor
from otel_zernel_processors.phases.config import PhasesConfig, ns
from otel_zernel_processors.phases.host import Host
from otel_zernel_processors.phases.intake.inputs import observations, scalars
from otel_zernel_processors.phases.jobs import Jobs
from otel_zernel_processors.phases.process import Process

SPANS = "otel_zernel_receivers.ebpf"
"""The scope of the spans that phases are made of; docs/spans.md says what is in them."""
_PIECE = 256
"""Spans of one process, or points, after which others get a turn."""
_RESOURCES = 64
"""Processes with fewer spans after which others get one, too."""
_LIVE_NS = 300_000_000_000
"""What was seen longer ago than this is no live stream but a recording, for which only its own time counts."""


class PhasesProcessor(Processor):
    """Says for each training process where every second of a step went, as metrics, traces and a verdict."""

    Config = PhasesConfig
    stability = "alpha"

    def __init__(self, config: PhasesConfig, context: Context) -> None:
        super().__init__(config, context)
        self._max_processes = config.max_processes
        self.interval = config.interval
        self._hosts: dict[str, Host] = {}
        self._here: Host | None = None
        """That of all that does not say where it is; None until something doesn't."""
        self._jobs = Jobs(config, context)
        self._lateness = ns(config.lateness)
        self._has_ticked = False
        if config.source != "signals" and "traces" not in context.signals:
            context.logger.warning(
                "PyTorch's scopes are spans, which this pipeline does not carry: to have phases by scopes, give it a "
                "name that does not begin with metrics, such as training"
            )

    def process(self, batch: Batch) -> Iterator[Batch]:
        """Takes the spans of the eBPF receiver, and reads metrics; everything else goes on as it is."""
        for number, seen in enumerate(observations(batch.metrics), 1):
            host = self._host(seen.host)
            if host:
                host.observe(seen)
            if number % _PIECE == 0:
                yield PAUSE
        took = self.config.source != "signals" and (yield from self._follow(batch.spans))
        rest = _without_taken(batch) if took and not self.config.pass_through else batch
        if rest is not None:
            yield rest
        yield from self._advance(lambda host: host.known)

    def tick(self, now_ns: int) -> Iterator[Batch]:
        """Lets the time of live hosts go on where nothing is heard from them any more."""
        if not self._hosts and not self._has_ticked:
            self.context.logger.warning(
                "Nothing that phases are made of has come so far: see that an ebpf receiver is in front of this "
                "processor, and by `otel-zernel doctor` that it works"
            )
        self._has_ticked = True
        for host in list(self._hosts.values()):
            if host.is_over(now_ns):
                yield from self._forget(host)
            silent = now_ns - ns(self.config.interval)
            if 0 < silent - host.time.now < _LIVE_NS:
                host.time.now = silent
        yield from self._advance(lambda host: host.known)

    def flush(self) -> Iterator[Batch]:
        """Everything that is still open."""
        yield from self._advance(lambda host: host.time.now - self._lateness)
        followed = self._all()
        for host in sorted(self._hosts.values(), key=lambda host: host.name):
            yield from host.end()
            yield from self._jobs.report(followed, host.name, host.time.now)
        self._hosts, self._here = {}, None

    def _follow(self, spans: TracesData) -> Generator[Batch, None, bool]:
        """Takes the spans of the eBPF receiver; returns whether there were any."""
        pieces = (
            (resource.resource, scope.spans[at : at + _PIECE])
            for resource in spans.resource_spans
            for scope in resource.scope_spans
            if scope.scope.name == SPANS
            for at in range(0, max(len(scope.spans), 1), _PIECE)
        )
        taken = 0
        for taken, (resource, some) in enumerate(pieces, 1):
            host = self._host(str(scalars(resource.attributes).get("host.name", "")))
            if host:
                host.follow(resource, some)
            else:
                self.context.drop(len(some), "max_processes")
            if len(some) == _PIECE or taken % _RESOURCES == 0:
                yield PAUSE
        return taken > 0

    def _host(self, name: str) -> Host | None:
        """The host of this name; None if there is no room for another.

        Who does not say where it is, is here: on the only host that is known then, else on one of its own, and from
        then on always there. If that has no name yet, it gets that of the first that has.
        """
        known = self._hosts.get(name) if name else self._here
        if known is None and len(self._hosts) == 1 and (not name or "" in self._hosts):
            (known,) = self._hosts.values()
            if name:
                known.rename(name)
                self._hosts = {name: known}
        if known is None and len(self._hosts) < self._max_processes:
            known = self._hosts[name] = Host(name, self.config, self.context, self._has_room)
        if not name:
            self._here = known
        return known

    def _forget(self, host: Host) -> Iterator[Batch]:
        del self._hosts[host.name]
        if host is self._here:
            self._here = None
        yield from host.forget()

    def _has_room(self) -> bool:
        return sum(len(host.processes) for host in self._hosts.values()) < self._max_processes

    def _advance(self, known: Callable[[Host], int]) -> Iterator[Batch]:
        """What is due of all hosts, in the order of time, so that ranks of one job stay side by side."""
        hosts = {host.name: host for host in self._hosts.values()}
        for due, name in sorted((due, name) for name, host in hosts.items() for due in host.due(known(host))):
            yield from hosts[name].report(due)
            yield from self._jobs.report(self._all(), name, due)
        for host in hosts.values():
            yield from host.advance(known(host))

    def _all(self) -> list[Process]:
        return [process for host in self._hosts.values() for process in host.processes.values()]


def _without_taken(batch: Batch) -> Batch | None:
    """The batch without the spans that were taken; None if that is nothing."""
    spans = TracesData()
    for resource in batch.spans.resource_spans:
        rest = [scope for scope in resource.scope_spans if scope.scope.name != SPANS]
        if rest:
            spans.resource_spans.add(resource=resource.resource, schema_url=resource.schema_url, scope_spans=rest)
    metrics = batch.only(metrics=True) if batch.has_metrics else None
    if not spans.resource_spans:
        return metrics
    return Batch.join([metrics, Batch(spans=spans)]) if metrics else Batch(spans=spans)
