"""The spans that one component writes are read by the next: ebpf, phases, and the views of its steps."""

from collections import Counter
from collections.abc import Iterator, Mapping

import numpy as np
from opentelemetry.proto.trace.v1.trace_pb2 import Span

from otel_zernel.batch import Batch
from otel_zernel.otlp.points import Attributes
from otel_zernel.testing import Dropped, make_context
from otel_zernel_libraries.training.interval_spans import CollectiveSpan, OperatorsSpan, ProcessSpan, interval_of
from otel_zernel_libraries.training.step_spans import SCOPE_NAME, JobStepSpan, SegmentSpan, step_of
from otel_zernel_processors.phases import PhasesProcessor
from otel_zernel_receivers.ebpf.emit.spans import SpanEncoder
from otel_zernel_receivers.ebpf.kernel.kernel_structs import EVENT, FACTS, Interval
from otel_zernel_receivers.ebpf.probes.calls import Operation
from otel_zernel_receivers.ebpf.tables.process_table import WatchedProcess

START = 1_700_000_000_000_000_000
MS = 1_000_000
PHASES = PhasesProcessor.Config.model_validate({"interval": "1s", "traces": {"sample": 1, "slowest": 0}})


class Ranks:
    """The identities of two ranks of a job: the pid is the rank and 1."""

    def is_selected(self, process: WatchedProcess) -> bool:
        return True

    def knows(self, process: WatchedProcess) -> bool:
        return True

    def attributes_of(self, process: WatchedProcess) -> Attributes:
        rank: dict[str, str | int] = {"zernel.rank": process.pid - 1, "zernel.world_size": 2, "zernel.job.id": "job"}
        return {"process.pid": process.pid, "process.creation.time": "2026", "host.name": "node", **rank}

    def origin(self, process: WatchedProcess) -> tuple[str, int, str]:
        return "node", process.pid, "2026"


def named(text: str) -> object:
    """The facts of a scope."""
    facts = np.zeros(1, FACTS)
    facts["name"] = text.encode()
    return facts[0]


def step(number: int) -> Iterator[Mapping[str, object]]:
    """The events of one step of 30 ms: a load, a run of operators, a backward pass with a collective, an optimizer."""
    at = number * 30
    facts = np.zeros(1, FACTS)
    facts["run"]["count"] = 8
    communication = np.zeros(1, FACTS)
    communication["communication"]["communicator"], communication["communication"]["size"] = 5, 2
    yield {"begin": at, "end": at + 3, "interval": Interval.DATA_LOADING, "facts": named("enumerate(DataLoader)#next")}
    yield {"begin": at + 4, "end": at + 10, "interval": Interval.OPERATORS, "facts": facts[0]}
    yield {"begin": at + 10, "end": at + 20, "interval": Interval.BACKWARD}
    collective = {"interval": Interval.COLLECTIVE, "operation": Operation.ALL_REDUCE, "sequence": number + 1}
    yield {"begin": at + 15, "end": at + 16, "facts": communication[0], **collective}
    yield {"begin": at + 20, "end": at + 25, "interval": Interval.SYNC, "facts": named("c10d::Work::wait")}
    yield {
        "begin": at + 25,
        "end": at + 28,
        "interval": Interval.OPTIMIZER,
        "facts": named("Optimizer.step#AdamW.step"),
    }


def written_by_ebpf() -> Batch:
    """Fifty steps of two ranks, and the exit of rank 1."""
    steps = [event for number in range(50) for event in step(number)]
    rows = [{"pid": pid, "tid": pid, "row": pid, **event} for pid in (1, 2) for event in steps]
    end = np.zeros(1, FACTS)
    end["end"]["status"] = 256
    rows.append({"pid": 2, "tid": 2, "row": 2, "begin": 0, "end": 1501, "interval": Interval.PROCESS, "facts": end[0]})
    events = np.zeros(len(rows), EVENT)
    for at, row in enumerate(rows):
        for name, value in row.items():
            events[name][at] = value * MS if name in ("begin", "end") else value  # type: ignore[operator]
    return SpanEncoder(Ranks(), offset_ns=START).batch(events)  # type: ignore[arg-type]  # the methods that it uses


def spans_of(batch: Batch, scope: str) -> list[Span]:
    return [
        span
        for resource in batch.spans.resource_spans
        for scope_span in resource.scope_spans
        if scope_span.scope.name == scope
        for span in scope_span.spans
    ]


def test_the_spans_of_the_ebpf_receiver_are_read_as_their_kinds() -> None:
    intervals = [interval_of(span) for span in spans_of(written_by_ebpf(), "otel_zernel_receivers.ebpf")]
    assert None not in intervals
    assert Counter(interval.kind for interval in intervals if interval) == {
        **dict.fromkeys(("data_loading", "operators", "backward", "collective", "sync", "optimizer"), 100),
        "process": 1,
    }
    collectives = [interval for interval in intervals if isinstance(interval, CollectiveSpan)]
    assert {collective.sequence for collective in collectives} == set(range(1, 51))
    assert {interval.operators for interval in intervals if isinstance(interval, OperatorsSpan)} == {8}
    (process,) = [interval for interval in intervals if isinstance(interval, ProcessSpan)]
    assert (process.ending.way, process.ending.exit_code) == ("exit", 1)


def test_the_steps_that_phases_makes_of_them_are_read_by_the_views() -> None:
    processor = PhasesProcessor(PHASES, make_context("processors", "phases"))
    made = Batch.join([*processor.process(written_by_ebpf()), *processor.flush()])
    spans = spans_of(made, SCOPE_NAME)
    steps = {span.span_id: read for span in spans if (read := step_of(span))}
    jobs = [JobStepSpan.from_span(span) for span in spans if span.name == JobStepSpan.name]
    segments = [SegmentSpan.from_span(span) for span in spans if span.parent_span_id in steps]
    assert Counter(step.kind for step in steps.values())["training"] >= 90
    assert len(jobs) >= 45
    assert {job.world_size for job in jobs} == {2}
    assert {"backward", "optimizer", "forward"} <= {segment.name for segment in segments}
    spent = sum(segment.end_ns - segment.start_ns for segment in segments)
    assert spent == sum(sum(step.phase_ns) for step in steps.values())
    assert isinstance(processor.context.drop, Dropped)
    assert processor.context.drop.counts == {}


def test_spans_that_lack_an_attribute_are_counted_and_the_others_are_used() -> None:
    processor = PhasesProcessor(PHASES, make_context("processors", "phases"))
    batch = written_by_ebpf()
    for span in batch.edit_spans().resource_spans[0].scope_spans[0].spans[:10]:
        for pair in span.attributes:
            pair.key = pair.key.replace("thread.id", "thread.ident")
    made = [*processor.process(batch), *processor.flush()]
    assert isinstance(processor.context.drop, Dropped)
    assert processor.context.drop.counts == {"malformed_span": 10}
    assert any("metrics" in batch.signals for batch in made)
