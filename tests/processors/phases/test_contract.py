"""The contract of docs/development/spans.md: any receiver can feed the processor."""

from collections.abc import Iterable, Mapping, Sequence
from functools import cache

import pytest
from opentelemetry.proto.metrics.v1.metrics_pb2 import Gauge, Metric, MetricsData, ResourceMetrics, ScopeMetrics

from otel_zernel.batch import Batch
from otel_zernel.otlp.points import AttributeValue, key_values
from tests.processors.phases.processing import dropped, feed, last, make, run
from tests.processors.phases.training import (
    MS,
    START,
    Loop,
    batch_of,
    metrics_of,
    resource_of,
    span_of,
    spans_of,
    values_of,
)


def renamed(batch: Batch, scope: str) -> Batch:
    """The batch with another name of the instrumentation scope."""
    for resource in batch.edit_spans().resource_spans:
        for scope_span in resource.scope_spans:
            scope_span.scope.name = scope
    return batch


@pytest.mark.parametrize("scope", ["", "com.example.receiver"])
def test_spans_are_recognised_by_their_attribute_whatever_their_scope(scope: str) -> None:
    loop = Loop().steps(100).load()
    made = run(renamed(batch_of(loop.spans), scope))
    expected = run(batch_of(loop.spans))
    assert [batch.bytes_of("metrics") for batch in made] == [batch.bytes_of("metrics") for batch in expected]
    assert [batch.bytes_of("traces") for batch in made] == [batch.bytes_of("traces") for batch in expected]
    assert last(made, "zernel.steps", zernel_step_kind="training") == 100


def test_spans_without_the_attribute_pass_even_beside_others() -> None:
    plain = [span_of("user", at, at + 1, name=f"request {at}") for at in range(3)]
    for span in plain:
        del span.attributes[:]
    loop = Loop().steps(50).load()
    made = run(batch_of([plain[0], *loop.spans, *plain[1:]]), traces=None)
    assert spans_of(made) == plain
    (passed,) = [batch for batch in made if "traces" in batch.signals]
    (resource,) = passed.spans.resource_spans
    assert resource.resource == resource_of()
    assert [scope.scope.name for scope in resource.scope_spans] == ["otel_zernel_receivers.ebpf"]
    assert last(made, "zernel.steps", zernel_step_kind="training") == 50


def test_a_host_with_only_spans_without_the_attribute_is_not_followed() -> None:
    span = span_of("user", 0, 1)
    del span.attributes[:]
    processor = make()
    assert spans_of(processor.process(batch_of([span]))) == [span]
    assert not processor._hosts.by_name


def test_traces_of_another_phases_processor_pass_unchanged() -> None:
    loop = Loop()
    for _ in range(20):
        loop.load().do("sync", 4, name="cudaStreamSynchronize").train()
    traces = [batch for batch in run(batch_of(loop.load().spans), traces={"sample": 1}) if "traces" in batch.signals]
    assert any(span.name == "cudaStreamSynchronize" for span in spans_of(traces))
    processor = make()
    assert spans_of(out for batch in traces for out in processor.process(batch)) == spans_of(traces)
    assert not processor._hosts.by_name


def sequence(at: float, number: int) -> Batch:
    """The point of `zernel.reading.sequence` at `at` ms."""
    gauge = Gauge()
    gauge.data_points.add(time_unix_nano=START + round(at * MS), as_int=number)
    metric = Metric(name="zernel.reading.sequence", unit="{reading}", gauge=gauge)
    resource = ResourceMetrics(scope_metrics=[ScopeMetrics(metrics=[metric])])
    resource.resource.attributes.extend(key_values({"host.name": "node"}))
    return Batch(metrics=MetricsData(resource_metrics=[resource]))


def closed_by_time(batches: Iterable[Batch]) -> list[tuple[int, float]]:
    """The time (ms) and the value of each point of `zernel.steps`."""
    return [
        ((point.time_unix_nano - START) // MS, point.as_int)
        for metric in metrics_of(batches, "zernel.steps")
        for point in metric.sum.data_points
    ]


@cache
def fed(numbers: Sequence[int] = range(1, 9)) -> list[Batch]:
    """40 s of steps, read every 5 s. Nothing is flushed."""
    processor, spans = make(lateness="1s"), Loop().steps(40_000 // 32).spans
    made: list[Batch] = []
    for at, number in zip(range(5_000, 40_001, 5_000), numbers, strict=True):
        some = [span for span in spans if at - 5_000 < (span.end_time_unix_nano - START) / MS <= at]
        made += processor.process(Batch.join([batch_of(some), sequence(at, number)]))
    return made


NUMBERS = {
    "a first number above 1": range(100, 108),
    "a restart of the receiver": (7, 8, 9, 1, 2, 3, 4, 5),
    "a gap": (1, 2, 3, 6, 7, 20, 21, 22),
    "the same number twice": (1, 2, 2, 3, 3, 4, 5, 6),
}


@pytest.mark.parametrize("numbers", NUMBERS.values(), ids=NUMBERS)
def test_every_sequence_point_is_a_reading_whatever_its_number(numbers: Sequence[int]) -> None:
    assert closed_by_time(fed(numbers)) == closed_by_time(fed())


def test_steps_wait_for_the_reading_after_the_one_that_covers_them() -> None:
    times = [time for time, _ in closed_by_time(fed())]
    assert max(times) == 35_000


def test_a_receiver_without_sequence_points_only_waits_for_lateness() -> None:
    processor, loop = make(lateness="1s"), Loop().steps(40_000 // 32)
    made = list(processor.process(batch_of(loop.spans)))
    assert max(time for time, _ in closed_by_time(made)) == 39_000
    assert values_of(made, "zernel.steps")


def test_one_malformed_span_loses_no_other_and_the_log_names_its_attribute(caplog: pytest.LogCaptureFixture) -> None:
    loop, processor = Loop().steps(50).load(), make()
    wrong = span_of("operators", 5, 9, gap_blocked=1e300)
    made = feed(processor, [batch_of([*loop.spans[:60], wrong, *loop.spans[60:]])])
    assert dropped(processor) == {"malformed_span": 1}
    assert last(made, "zernel.steps", zernel_step_kind="training") == 50
    assert "zernel.gap.blocked" in caplog.text


@pytest.mark.parametrize(
    "end", [{"zernel.process.end": "signal", "zernel.process.signal": 9}, {"zernel.process.end": "exit"}]
)
def test_an_end_without_its_details_ends_the_process_and_passes(end: Mapping[str, AttributeValue]) -> None:
    span = span_of("process", 0, 3000)
    del span.attributes[:]
    span.attributes.extend(key_values({"zernel.interval": "process", "thread.id": 1, **end}))
    processor = make(lateness="500ms")
    made = list(processor.process(batch_of([*Loop().steps(90).spans, span], resource_of(1))))
    assert [span for span in spans_of(made) if span.name == "process"] == [span]
    late = batch_of(Loop(now=3000).steps(3).spans, resource_of(1))
    batch = batch_of(Loop(now=3000).steps(100).spans, resource_of(2))
    feed(processor, [batch, late])
    assert dropped(processor)["late"] > 0


def test_an_end_of_a_kind_that_is_not_known_passes_and_ends_nothing() -> None:
    span, processor = span_of("process", 0, 3000, process_end="exec"), make()
    for pair in span.attributes:
        if pair.key == "zernel.process.end":
            pair.value.string_value = "core"
    made = feed(processor, [batch_of([*Loop().steps(90).spans, span])])
    assert span in spans_of(made)
    assert dropped(processor) == {}


def test_malformed_spans_of_a_worker_are_counted() -> None:
    processor = make()
    wrong = span_of("sync", 1, 2)
    del wrong.attributes[1]
    worker = batch_of([wrong], resource_of(43, process_parent_pid=42))
    feed(processor, [batch_of(Loop().steps(90).spans), worker])
    assert dropped(processor) == {"malformed_span": 1}
