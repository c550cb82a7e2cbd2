"""One process that is followed: who it is, its timeline, its sums, and what it reports."""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from opentelemetry.proto.resource.v1.resource_pb2 import Resource
from opentelemetry.proto.trace.v1.trace_pb2 import Span

from otel_zernel.batch import Batch
from otel_zernel.component import Context
from otel_zernel_processors.phases.account import Account, Tally
from otel_zernel_processors.phases.config import PhasesConfig, ns
from otel_zernel_processors.phases.durations import StepDurations
from otel_zernel_processors.phases.ledger import PHASES
from otel_zernel_processors.phases.marks import Mark
from otel_zernel_processors.phases.metrics import Labels, Writer
from otel_zernel_processors.phases.timeline import ClosedStep, Timeline
from otel_zernel_processors.phases.traces import Candidate, Sampler, traces_data


@dataclass(frozen=True, slots=True, order=True)
class Identity:
    """Which process: a pid may come back, but not with the same creation time."""

    host: str
    pid: int
    created: str


class Process:
    """Follows one process from its first span to its last."""

    def __init__(self, identity: Identity, resource: Resource, config: PhasesConfig, context: Context) -> None:
        self.identity = identity
        self.resource = resource
        self.labels: Labels = {"process.pid": identity.pid}
        self.account = Account(round(config.window / config.interval))
        self.tally = Tally()
        """The window's sums, as of the last report."""
        self._config = config
        self._context = context
        self._timeline = Timeline(ns(config.bridge), config.max_spans)
        self._sampler = Sampler(config.traces, str(identity)) if config.traces else None
        self._durations = StepDurations()
        self._since = self._reported = 0

    @property
    def last_seen(self) -> int:
        """The end (ns) of the last span."""
        return self._timeline.last_end

    def add(self, mark: Mark) -> bool:
        """Takes a mark, unless it is too late or there is no room."""
        self._since = self._since or mark.start
        return self._timeline.add(mark)

    def lose(self, start: int, end: int) -> None:
        """Notes that events were lost between these times (ns)."""
        self._timeline.lose(start, end)

    def advance(self, until: int) -> None:
        """Closes what is known by `until` (ns)."""
        self._count(self._timeline.advance(until))

    def end(self) -> None:
        """Closes everything: the process has ended."""
        self._count(self._timeline.end())

    def report(self, now: int) -> Iterator[Batch]:
        """The metrics as of `now` (ns), and the traces of the steps chosen since the last report."""
        self.tally = self.account.close()
        chosen = self._sampler.chosen() if self._sampler else []
        writer = Writer(self.labels, self._since, now)
        self._write(writer)
        writer.add(self._durations.metric(chosen, self.labels, self._reported or self._since, now))
        self._durations, self._reported = StepDurations(), now
        yield Batch(metrics=writer.data(self.resource))
        if self._sampler and chosen:
            spans = [span for candidate in chosen for span in self._trace(self._sampler, candidate)]
            yield Batch(spans=traces_data(self.resource, spans))

    def _count(self, steps: Iterable[ClosedStep]) -> None:
        for closed in steps:
            self.account.add_step(closed)
            self._durations.add(closed.step.kind, closed.step.end - closed.step.start)
            if self._sampler and not self._sampler.consider(closed):
                self._context.drop(1, "max_steps")

    def _trace(self, sampler: Sampler, candidate: Candidate) -> list[Span]:
        spans, dropped = sampler.trace_of(candidate, self.labels)
        if dropped:
            self._context.drop(dropped, "max_trace_spans")
        return spans

    def _write(self, writer: Writer) -> None:
        account, tally = self.account, self.tally
        source: Labels = {"zernel.phase.source": account.source}
        times = sorted(account.phase_ns.items())
        writer.sum(
            "zernel.phase.time",
            "s",
            [({"zernel.phase": phase, "zernel.phase.source": by}, spent / 1e9) for (phase, by), spent in times],
        )
        writer.gauge(
            "zernel.phase.fraction",
            "1",
            [({"zernel.phase": phase, **source}, tally.fraction(phase)) for phase in PHASES],
        )
        writer.sum("zernel.phase.transitions", "{transition}", [(source, account.transitions)])
        writer.sum("zernel.steps", "{step}", [({"zernel.step.kind": k}, n) for k, n in sorted(account.steps.items())])
        writer.sum("zernel.steps.lossy", "{step}", [({}, account.lossy_steps)])
        writer.sum("zernel.epochs", "{epoch}", [({}, account.epochs)])
        writer.sum("zernel.collective.overlap", "s", [({}, account.overlap_ns / 1e9)])
        seconds = tally.phase_ns.total() / 1e9
        writer.gauge("zernel.step.rate", "{step}/s", [({}, tally.trained / seconds if seconds else 0.0)])
