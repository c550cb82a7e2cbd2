"""The way of records into the pipelines, and the moment of the commit."""

import asyncio
import logging

import pytest

from otel_zernel.batch import Batch
from otel_zernel.errors import Rejected
from otel_zernel.otlp.json import to_json
from otel_zernel.testing import Downstream, until
from tests.core.parts import batch_of, every_signal, values_of
from tests.libraries.clients.kafka.mock_cluster import MockCluster, messages_in, write
from tests.receivers.kafka.receiving import METRICS, committed, dropped_by, receiving


def encoded(*values: float) -> bytes:
    return batch_of(*values).bytes_of("metrics")


async def test_records_of_every_signal_arrive_as_batches(cluster: MockCluster) -> None:
    batch, downstream = every_signal(), Downstream()
    write(cluster.brokers, "otlp_metrics", batch.bytes_of("metrics"))
    write(cluster.brokers, "otlp_spans", batch.bytes_of("traces"))
    write(cluster.brokers, "otlp_logs", batch.bytes_of("logs"))
    async with receiving(cluster.brokers, downstream):
        await until(lambda: len(downstream.batches) == 3)
    assert {signal for batch in downstream.batches for signal in batch.signals} == {"metrics", "traces", "logs"}
    assert all(one.bytes_of(one.signals[0]) == batch.bytes_of(one.signals[0]) for one in downstream.batches)


async def test_the_records_of_a_fetch_are_joined_in_their_order(cluster: MockCluster) -> None:
    downstream = Downstream()
    write(cluster.brokers, METRICS, *(encoded(float(number)) for number in range(50)))
    async with receiving(cluster.brokers, downstream):
        await until(lambda: downstream.point_count == 50)
    assert values_of(downstream.batches) == [float(number) for number in range(50)]
    assert len(downstream.batches) < 50


async def test_refused_records_are_offered_again_and_committed_once_accepted(cluster: MockCluster) -> None:
    write(cluster.brokers, METRICS, encoded(1.0), encoded(2.0))
    downstream = Downstream(refuse=3)
    async with receiving(cluster.brokers, downstream, error_backoff={"initial_interval": "1ms"}) as receiver:
        await until(lambda: downstream.point_count == 2)
    assert values_of(downstream.batches) == [1.0, 2.0]
    assert dropped_by(receiver) == {}
    assert await asyncio.to_thread(committed, cluster.brokers) == 2


async def test_rejected_records_are_passed_over(cluster: MockCluster, caplog: pytest.LogCaptureFixture) -> None:
    write(cluster.brokers, METRICS, encoded(1.0))
    calls = 0

    async def emit(batch: Batch, *, transport: str = "") -> None:
        nonlocal calls
        calls += 1
        raise Rejected("an exporter without a queue dropped the batch")

    with caplog.at_level(logging.WARNING):
        async with receiving(cluster.brokers, emit):
            await until(lambda: "Downstream rejected 1 items" in caplog.text)
            await until(lambda: committed(cluster.brokers) == 1)
    assert calls == 1


async def test_after_a_restart_the_group_goes_on_where_it_was(cluster: MockCluster) -> None:
    first, second = Downstream(), Downstream()
    write(cluster.brokers, METRICS, encoded(1.0), encoded(2.0))
    async with receiving(cluster.brokers, first):
        await until(lambda: first.point_count == 2)
    write(cluster.brokers, METRICS, encoded(3.0))
    async with receiving(cluster.brokers, second):
        await until(lambda: second.point_count)
    assert (values_of(first.batches), values_of(second.batches)) == ([1.0, 2.0], [3.0])


POISON = b"\xff\xff no otlp"


async def test_poisoned_records_go_to_the_dead_letters_and_hold_up_nothing(cluster: MockCluster) -> None:
    values = [POISON, encoded(1.0), POISON, POISON, encoded(2.0), encoded(3.0), POISON]
    write(cluster.brokers, METRICS, *values, key=b"k", headers=[("team", b"a")])
    downstream = Downstream()
    async with receiving(cluster.brokers, downstream, dead_letter_topic="dead") as receiver:
        await until(lambda: downstream.point_count == 3)
        letters = await asyncio.to_thread(messages_in, cluster.brokers, "dead", 4)
        await until(lambda: committed(cluster.brokers) == len(values))
    assert values_of(downstream.batches) == [1.0, 2.0, 3.0]
    assert {(letter.value(), letter.key()) for letter in letters} == {(POISON, b"k")}
    headers = [dict(letter.headers() or []) for letter in letters]
    expected = {"team": b"a", "kafka.topic": METRICS.encode(), "kafka.partition": b"0"}
    assert all(expected.items() <= of_letter.items() for of_letter in headers)
    assert {of_letter["kafka.offset"] for of_letter in headers} == {b"0", b"2", b"3", b"6"}
    assert dropped_by(receiver) == {}


async def test_without_a_dead_letter_topic_poisoned_records_are_counted_and_dropped(
    cluster: MockCluster, caplog: pytest.LogCaptureFixture
) -> None:
    write(cluster.brokers, METRICS, POISON, None, encoded(1.0), POISON)
    downstream = Downstream()
    with caplog.at_level(logging.WARNING):
        async with receiving(cluster.brokers, downstream) as receiver:
            await until(lambda: committed(cluster.brokers) == 4)
    assert values_of(downstream.batches) == [1.0]
    assert dropped_by(receiver) == {"not_otlp": 2}
    assert f"not OTLP, the first one at offset 0 of {METRICS}[0]" in caplog.text


async def test_json_and_chosen_headers_arrive(cluster: MockCluster) -> None:
    options = {
        "metrics": {"topics": ["^json_.*"], "encoding": "otlp_json", "exclude_topics": ["^json_other$"]},
        "header_extraction": {"extract_headers": True, "headers": ["tenant"]},
    }
    value = to_json(batch_of(1.0).metrics)
    write(cluster.brokers, "json_other", value)
    write(cluster.brokers, "json_metrics", value, headers=[("tenant", b"blue"), ("secret", b"s")])
    downstream = Downstream()
    async with receiving(cluster.brokers, downstream, **options):
        await until(lambda: downstream.batches)
    (resource,) = (
        resource_metric.resource for batch in downstream.batches for resource_metric in batch.metrics.resource_metrics
    )
    found = {attribute.key: attribute.value.string_value for attribute in resource.attributes}
    assert found == {"host.name": "node", "kafka.header.tenant": "blue"}
