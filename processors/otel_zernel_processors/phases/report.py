"""What a process reports at an interval: metrics, and the traces of chosen steps."""

from collections.abc import Iterable, Iterator, Mapping

from opentelemetry.proto.trace.v1.trace_pb2 import Span

from otel_zernel.batch import Batch
from otel_zernel.component import Context
from otel_zernel_processors.phases.durations import StepDurations
from otel_zernel_processors.phases.ledger import PHASES
from otel_zernel_processors.phases.metrics import Labels, Value, Writer, state_set
from otel_zernel_processors.phases.process import Process
from otel_zernel_processors.phases.traces import Candidate, Sampler, traces_data
from otel_zernel_processors.phases.verdict import ADVICE, VERDICTS

_PIECE = 256
"""Spans after which a batch of traces is large enough: making them takes about 2 ms."""


def report(process: Process, now: int, context: Context) -> Iterator[Batch]:
    """The metrics as of `now` (ns), and the traces of the steps chosen since the last report."""
    process.tally = process.account.close()
    labels: Labels = {"process.pid": process.identity.pid}
    chosen = process.sampler.chosen() if process.sampler else []
    writer = Writer(labels, process.since, now)
    _write_phases(process, writer)
    _write_steps(process, writer)
    writer.add(process.durations.metric(chosen, labels, process.reported or process.since, now))
    _write_verdict(process, writer, context)
    process.durations, process.reported = StepDurations(), now
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
    fractions: list[Value] = [({"zernel.phase": phase, **source}, tally.fraction(phase)) for phase in PHASES]
    writer.gauge("zernel.phase.fraction", "1", fractions)
    writer.sum("zernel.phase.transitions", "{transition}", [(source, account.transitions)])
    writer.sum("zernel.phase.energy", "J", _by_phase(process.spent.joules))
    writer.sum("zernel.phase.gpu.idle", "s", _by_phase(process.spent.idle_s))


def _by_phase(spent: Mapping[str, float]) -> list[Value]:
    return [({"zernel.phase": phase}, amount) for phase, amount in sorted(spent.items())]


def _write_steps(process: Process, writer: Writer) -> None:
    account, tally = process.account, process.tally
    if not account.steps:
        return
    writer.sum("zernel.steps", "{step}", [({"zernel.step.kind": kind}, n) for kind, n in sorted(account.steps.items())])
    writer.sum("zernel.steps.lossy", "{step}", [({}, account.lossy_steps)])
    writer.sum("zernel.phase.doubtful", "s", [({}, process.doubtful_ns / 1e9)])
    writer.sum("zernel.epochs", "{epoch}", [({}, account.epochs)])
    writer.sum("zernel.collective.overlap", "s", [({}, account.overlap_ns / 1e9)])
    seconds = tally.phase_ns.total() / 1e9
    writer.gauge("zernel.step.rate", "{step}/s", [({}, tally.trained / seconds if seconds else 0.0)])
    writer.gauge("zernel.step.jitter", "1", [({}, tally.jitter)])


def _write_verdict(process: Process, writer: Writer, context: Context) -> None:
    changed = process.judge.hear(process.tally)
    verdict, evidence = process.judge.finding
    writer.gauge("zernel.verdict", "", state_set("zernel.verdict", VERDICTS, verdict))
    if changed:
        values = ", ".join(f"{name} {value:.2f}" for name, value in evidence.items())
        identity = process.identity
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
                yield Batch()
        if len(spans) >= _PIECE:
            yield Batch(spans=traces_data(process.resource, spans))
            spans = []
    if spans:
        yield Batch(spans=traces_data(process.resource, spans))
