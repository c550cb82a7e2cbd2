"""The batch processor keeps every item exactly once and in order, and sends it in time."""

from collections.abc import Iterable
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from opentelemetry.proto.common.v1.common_pb2 import AnyValue
from opentelemetry.proto.logs.v1.logs_pb2 import LogRecord
from opentelemetry.sdk.metrics import MeterProvider
from opentelemetry.sdk.metrics.export import InMemoryMetricReader
from pydantic import ValidationError

from otel_zernel.batch import Batch
from otel_zernel.testing import Dropped, FakeClock, make_context
from otel_zernel_processors.batch import BatchProcessor
from tests.core.parts import batch_of, values_of
from tests.otlp import logs, metrics_in, profiles


def processor(clock: FakeClock | None = None, **options: Any) -> BatchProcessor:
    config = BatchProcessor.Config.model_validate(options)
    return BatchProcessor(config, make_context("processors", "batch", clock=clock))


def sent(outputs: Iterable[Batch]) -> list[list[float]]:
    """The values of each batch."""
    return [values_of([batch]) for batch in outputs]


def records(*bodies: str) -> Batch:
    return Batch(logs=logs(*(LogRecord(body=AnyValue(string_value=body)) for body in bodies)))


SIZES = st.lists(st.tuples(st.integers(1, 30), st.sampled_from([0.0, 0.05, 0.3])), max_size=20)


@given(SIZES, st.integers(0, 40), st.integers(0, 40), st.sampled_from(["0s", "200ms"]))
def test_every_item_leaves_once_and_in_order(
    sizes: list[tuple[int, float]], size: int, extra: int, timeout: str
) -> None:
    clock = FakeClock()
    largest = size + extra if extra % 2 else 0
    one = processor(clock, send_batch_size=size, send_batch_max_size=largest, timeout=timeout)
    batches: list[list[float]] = []
    number = 0
    for count, seconds in sizes:
        batches += sent(one.process(batch_of(*range(number, number + count))))
        number += count
        clock.advance(seconds)
        batches += sent(one.tick(clock.time_ns()))
    batches += sent(one.flush())
    assert [value for batch in batches for value in batch] == list(range(number))
    assert not largest or max(map(len, batches), default=0) <= largest


def test_a_batch_is_sent_when_it_is_large_enough() -> None:
    one = processor(send_batch_size=3)
    assert sent(one.process(batch_of(1, 2))) == []
    assert sent(one.process(batch_of(3, 4))) == [[1, 2, 3, 4]]
    assert sent(one.flush()) == []


def test_an_incomplete_batch_is_sent_after_the_timeout() -> None:
    clock = FakeClock()
    one = processor(clock, timeout="200ms")
    list(one.process(batch_of(1)))
    clock.advance(0.1)
    list(one.process(batch_of(2)))
    assert sent(one.tick(clock.time_ns())) == []
    clock.advance(0.1)
    assert sent(one.tick(clock.time_ns())) == [[1, 2]]
    assert sent(one.tick(clock.time_ns())) == []
    assert one.interval is not None
    assert one.interval <= 0.05


def test_a_timeout_of_zero_sends_at_once_and_only_splits() -> None:
    one = processor(timeout="0s", send_batch_size=10, send_batch_max_size=10)
    assert sent(one.process(batch_of(*range(25)))) == [list(range(10)), list(range(10, 20)), list(range(20, 25))]
    assert one.interval is None


def test_the_rest_of_a_split_waits_for_more() -> None:
    one = processor(send_batch_size=4, send_batch_max_size=4)
    assert sent(one.process(batch_of(*range(6)))) == [[0, 1, 2, 3]]
    assert sent(one.process(batch_of(6, 7))) == [[4, 5, 6, 7]]


def test_signals_are_joined_apart() -> None:
    one = processor(send_batch_size=2)
    both = Batch.join([batch_of(1), records("a")])
    assert list(one.process(both)) == []
    [metrics] = one.process(batch_of(2))
    assert metrics.signals == ("metrics",)
    [log_records] = one.flush()
    assert (log_records.signals, log_records.item_count) == (("logs",), 1)


def test_joining_does_not_parse() -> None:
    one = processor(send_batch_size=2)
    parts = [Batch.encoded("metrics", text, 1) for text in (b"no OTLP ", b"at all")]
    list(one.process(parts[0]))
    [joined] = one.process(parts[1])
    assert (joined.bytes_of("metrics"), joined.point_count) == (b"no OTLP at all", 2)


def test_a_copy_in_another_pipeline_stays_as_it_is() -> None:
    one, batch = processor(send_batch_size=2), batch_of(1)
    copy = batch.copy()
    list(one.process(batch))
    [joined] = one.process(batch_of(2))
    joined.edit_metrics().Clear()
    assert values_of([copy]) == [1]


@pytest.mark.parametrize(
    ("options", "sentence"),
    [
        ({"send_batch_max_size": 100}, r"send_batch_max_size \(100\) must be 0 or at least send_batch_size \(8192\)"),
        ({"metadata_keys": ["tenant"]}, "batches carry no metadata of clients"),
        ({"timeout": "-1s"}, "not a duration"),
        ({"send_batch_size": -1}, "greater than or equal to 0"),
    ],
)
def test_a_wrong_configuration_is_refused_with_a_reason(options: dict[str, Any], sentence: str) -> None:
    with pytest.raises(ValidationError, match=sentence):
        processor(**options)


def test_the_defaults_are_those_of_the_opentelemetry_collector() -> None:
    assert processor().config.model_dump() == {
        "timeout": "200ms",
        "send_batch_size": 8192,
        "send_batch_max_size": 0,
        "metadata_keys": (),
        "metadata_cardinality_limit": 1000,
    }


def test_a_batch_that_is_no_otlp_costs_only_itself_and_is_counted() -> None:
    damaged = Batch.encoded("metrics", b"\x0a\x05damage", 1)
    one = processor(send_batch_size=5, send_batch_max_size=5)
    batches = sent(one.process(batch_of(1.0, 2.0, 3.0)))
    batches += sent(one.process(damaged))
    batches += sent(one.process(batch_of(4.0, 5.0, 6.0)))
    batches += sent(one.flush())
    assert [value for batch in batches for value in batch] == [1, 2, 3, 4, 5, 6]
    assert isinstance(one.context.drop, Dropped)
    assert one.context.drop.counts == {"undecodable": 1}


def test_profiles_pass_as_they_are() -> None:
    one = processor(send_batch_size=100, send_batch_max_size=100)
    batch = Batch(metrics=batch_of(1.0).metrics, profiles=profiles(*range(200)))
    (passed,) = one.process(batch)
    assert (passed.signals, passed.profiles) == (("profiles",), batch.profiles)
    assert sent(one.flush()) == [[1.0]]


def test_sizes_and_triggers_are_counted_under_the_names_of_the_opentelemetry_collector() -> None:
    clock, reader = FakeClock(), InMemoryMetricReader()
    context = make_context("processors", "batch", clock=clock, meter=MeterProvider([reader]).get_meter("test"))
    batching = BatchProcessor(BatchProcessor.Config(send_batch_size=10), context)
    assert len(list(batching.process(batch_of(*range(12))))) == 1
    assert list(batching.process(batch_of(1.0))) == []
    clock.advance(0.3)
    assert len(list(batching.tick(clock.time_ns()))) == 1
    data = reader.get_metrics_data()
    assert data
    by_name = {metric.name: metric.data.data_points[0] for metric in metrics_in(data)}
    sizes: Any = by_name["otelcol_processor_batch_batch_send_size"]
    assert (sizes.count, sizes.sum, sizes.attributes) == (2, 13, {"processor": "batch"})
    counters: list[Any] = [
        by_name[f"otelcol_processor_batch_{name}_trigger_send"] for name in ("batch_size", "timeout")
    ]
    assert [counter.value for counter in counters] == [1, 1]
