"""What a process reports at an interval: metrics, and the traces of chosen steps."""

from collections.abc import Iterable, Iterator, Mapping

from opentelemetry.proto.trace.v1.trace_pb2 import Span

from otel_zernel.batch import Batch
from otel_zernel.component import PAUSE, Context
from otel_zernel_processors.phases.emit.durations import StepDurations
from otel_zernel_processors.phases.emit.metrics import Labels, Value, Writer, state_set
from otel_zernel_processors.phases.emit.traces import Candidate, Sampler, traces_data
from otel_zernel_processors.phases.process import Process
from otel_zernel_processors.phases.results.verdict import ADVICE, VERDICTS
from otel_zernel_processors.phases.scopes.attribution import PHASES

_PIECE = 256
"""Spans after which a batch of traces is large enough: making them takes about 2 ms."""

_BY_SCOPES: Labels = {"zernel.phase.source": "scopes"}
"""Steps are known by scopes alone."""


def report(process: Process, now: int, context: Context) -> Iterator[Batch]:
    """The metrics as of `now` (ns), the ends of those told before that have none, and the traces of the steps chosen
    since the last report."""
    process.tally = process.account.close()
    labels: Labels = {"process.pid": process.identity.pid}
    chosen = process.sampler.chosen() if process.sampler else []
    writer = Writer(labels, process.since, now)
    _write_phases(process, writer)
    if process.account.steps:
        _write_steps(process, writer)
        writer.histogram(
            process.durations.metric(chosen, {**labels, **_BY_SCOPES}, process.reported or process.since, now)
        )
    _write_verdict(process, writer, context)
    process.durations, process.reported = StepDurations(), now
    ends = Batch(metrics=process.told.tell(process.resource, writer.metrics, now))
    if ends.point_count:
        yield ends
    yield Batch(metrics=writer.data(process.resource))
    if process.sampler and chosen:
        yield from _traces(process, process.sampler, chosen, labels)


def _write_phases(process: Process, writer: Writer) -> None:
    account, tally = process.account, process.tally
    source: Labels = {"zernel.phase.source": account.source}
    times: list[Value] = [
        ({"zernel.phase": phase, "zernel.phase.source": by}, spent / 1e9)
        for (phase, by), spent in sorted(account.phase_ns.items())
    ]
    writer.sum("zernel.phase.time", "s", times)
    if tally.phase_ns.total():  # of no time there are no shares
        fractions: list[Value] = [({"zernel.phase": phase, **source}, tally.fraction(phase)) for phase in PHASES]
        writer.gauge("zernel.phase.fraction", "1", fractions)
    counts: list[Value] = [({"zernel.phase.source": by}, n) for by, n in sorted(account.transitions.items())]
    writer.sum("zernel.phase.transitions", "{transition}", counts)
    writer.sum("zernel.phase.energy", "J", _by_phase({by: spent.joules for by, spent in process.spent.items()}))
    writer.sum("zernel.phase.gpu.idle", "s", _by_phase({by: spent.idle_s for by, spent in process.spent.items()}))


def _by_phase(spent: Mapping[str, Mapping[str, float]]) -> Iterator[Value]:
    for source, amounts in sorted(spent.items()):
        for phase, amount in sorted(amounts.items()):
            yield {"zernel.phase": phase, "zernel.phase.source": source}, amount


def _write_steps(process: Process, writer: Writer) -> None:
    account, tally = process.account, process.tally
    counts: list[Value] = [({"zernel.step.kind": kind, **_BY_SCOPES}, n) for kind, n in sorted(account.steps.items())]
    writer.sum("zernel.steps", "{step}", counts)
    writer.sum("zernel.steps.lossy", "{step}", [(_BY_SCOPES, account.lossy_steps)])
    writer.sum("zernel.phase.doubtful", "s", [(_BY_SCOPES, process.doubtful_ns / 1e9)])
    writer.sum("zernel.epochs", "{epoch}", [(_BY_SCOPES, account.epochs)])
    writer.sum("zernel.collective.overlap", "s", [(_BY_SCOPES, account.overlap_ns / 1e9)])
    seconds = tally.phase_ns.total() / 1e9
    writer.gauge("zernel.step.rate", "{step}/s", [(_BY_SCOPES, tally.trained / seconds if seconds else 0.0)])
    writer.gauge("zernel.step.jitter", "1", [(_BY_SCOPES, tally.jitter)])


def _write_verdict(process: Process, writer: Writer, context: Context) -> None:
    changed = process.judge.hear(process.tally, process.missing)
    verdict, evidence = process.judge.finding
    source: Labels = {"zernel.phase.source": process.account.source}
    states = state_set("zernel.verdict", VERDICTS, verdict)
    writer.gauge("zernel.verdict", "", [({**labels, **source}, value) for labels, value in states])
    if changed:
        values = ", ".join(f"{name} {value:.2f}" for name, value in evidence.items())
        identity = process.identity
        if verdict == "marks_missing":
            values = f"missing: {', '.join(sorted(process.missing))}"
        context.logger.info(
            "process %d on %s is %s: %s (%s)", identity.pid, identity.host, verdict, ADVICE[verdict], values
        )


def _traces(process: Process, sampler: Sampler, chosen: Iterable[Candidate], labels: Labels) -> Iterator[Batch]:
    """The traces of the chosen steps, none of them cut; empty batches, for others to get a turn."""
    spans: list[Span] = []
    for candidate in chosen:
        for span in sampler.trace_of(candidate, labels):
            spans.append(span)
            if len(spans) % _PIECE == 0:
                yield PAUSE
        if len(spans) >= _PIECE:
            yield Batch(spans=traces_data(process.resource, spans))
            spans = []
    if spans:
        yield Batch(spans=traces_data(process.resource, spans))
