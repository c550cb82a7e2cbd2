"""The phases processor: spans of training processes in, metrics, traces and verdicts of their phases out."""

from collections.abc import Iterable, Iterator

from opentelemetry.proto.resource.v1.resource_pb2 import Resource
from opentelemetry.proto.trace.v1.trace_pb2 import Span

from otel_zernel.batch import Batch
from otel_zernel.component import Context, Processor
from otel_zernel_processors.phases.config import PhasesConfig, ns
from otel_zernel_processors.phases.marks import mark_of
from otel_zernel_processors.phases.process import Identity, Process

SPANS = "otel_zernel_receivers.ebpf"
"""The scope of the spans that phases are made of."""


class Host:
    """The processes of one host, and its time: that of the latest thing seen of it, never the wall clock."""

    def __init__(self) -> None:
        self.processes: dict[Identity, Process] = {}
        self.clock = 0
        self.due = 0
        """When (ns) the next report is due."""


class PhasesProcessor(Processor):
    """Says for each training process where every second of a step went, as metrics and as traces."""

    Config = PhasesConfig
    stability = "beta"

    def __init__(self, config: PhasesConfig, context: Context) -> None:
        super().__init__(config, context)
        self._hosts: dict[str, Host] = {}
        self._interval = ns(config.interval)

    def process(self, batch: Batch) -> Iterator[Batch]:
        """Takes the spans of the eBPF receiver; everything else goes on as it is."""
        took = self._take_spans(batch)
        rest = self._rest(batch) if took and not self.config.pass_through else batch
        if rest is not None:
            yield rest
        for host in self._hosts.values():
            yield from self._advance(host, host.clock - ns(self.config.lateness))

    def flush(self) -> Iterator[Batch]:
        """Everything that is still open."""
        hosts, self._hosts = self._hosts, {}
        for host in hosts.values():
            yield from self._advance(host, host.clock)
            for process in host.processes.values():
                process.end()
                yield from process.report(host.clock)

    def _take_spans(self, batch: Batch) -> bool:
        took = False
        for resource in batch.spans.resource_spans:
            for scope in resource.scope_spans:
                if scope.scope.name == SPANS and scope.spans:
                    took = True
                    self._follow(resource.resource, scope.spans)
        return took

    def _rest(self, batch: Batch) -> Batch | None:
        """The batch without the spans that were taken; None if that is nothing."""
        spans = batch.edit_spans()
        for resource in spans.resource_spans:
            _keep(resource.scope_spans, [scope.scope.name != SPANS for scope in resource.scope_spans])
        _keep(spans.resource_spans, [len(resource.scope_spans) > 0 for resource in spans.resource_spans])
        if spans.resource_spans:
            return batch
        return batch.only(metrics=True) if batch.has_metrics else None

    def _follow(self, resource: Resource, spans: Iterable[Span]) -> None:
        identity = _identity(resource)
        host = self._hosts.setdefault(identity.host, Host())
        process = host.processes.get(identity)
        if process is None:
            process = host.processes[identity] = Process(identity, resource, self.config, self.context)
        for span in spans:
            mark = mark_of(span)
            if mark is None:
                self.context.drop(1, "invalid")
            elif not process.add(mark):
                self.context.drop(1, "late")
            else:
                host.clock = max(host.clock, mark.end)

    def _advance(self, host: Host, until: int) -> Iterator[Batch]:
        if not host.due:
            host.due = min(p.last_seen for p in host.processes.values()) // self._interval * self._interval
        while host.due <= until:
            for process in host.processes.values():
                process.advance(host.due)
                yield from process.report(host.due)
            host.due += self._interval
        for process in host.processes.values():
            process.advance(until)


def _identity(resource: Resource) -> Identity:
    texts = {pair.key: pair.value for pair in resource.attributes}
    pid = texts["process.pid"].int_value if "process.pid" in texts else 0
    host, created = (texts[key].string_value if key in texts else "" for key in ("host.name", "process.creation.time"))
    return Identity(host, pid, created)


def _keep(items, keep: list[bool]) -> None:  # type: ignore[no-untyped-def]  # two repeated fields without a common type
    for index in range(len(keep) - 1, -1, -1):
        if not keep[index]:
            del items[index]
