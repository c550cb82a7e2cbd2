"""Pipelines that take nothing: the receiver pauses, keeps its place in the group, and goes on."""

import asyncio

import pytest
from opentelemetry.sdk.metrics import MeterProvider
from opentelemetry.sdk.metrics.export import InMemoryMetricReader

from otel_zernel.batch import Batch
from otel_zernel.testing import Downstream, until
from otel_zernel_receivers.kafka import consuming
from tests.core.parts import batch_of, values_of
from tests.libraries.clients.kafka.mock_cluster import MockCluster, write
from tests.receivers.kafka.receiving import METRICS, committed, dropped_by, receiving
from tests.receivers.kafka.test_measuring import values_of_metrics


async def test_a_receiver_that_cannot_deliver_holds_little_commits_nothing_and_resumes_without_loss(
    cluster: MockCluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    """50 kB records: a fetch has at most 2 MiB, and two wait besides the one in the pipelines."""
    monkeypatch.setattr(consuming, "_PATIENCE", 0.2)
    count = 40
    points = [batch_of(*(float(number),) * 1700).bytes_of("metrics") for number in range(count)]
    free, held, largest = asyncio.Event(), 0, 0
    taken: list[float] = []

    async def emit(batch: Batch, *, transport: str = "") -> None:
        nonlocal held, largest
        held += 1
        largest = max(largest, len(batch.bytes_of("metrics")))
        await free.wait()
        taken.extend(values_of([batch])[::1700])

    for half in (points[:20], points[20:]):
        write(cluster.brokers, METRICS, *half)
    async with receiving(cluster.brokers, emit) as receiver:
        await until(lambda: held)
        write(cluster.brokers, METRICS, *points[:5], partition=1)
        await asyncio.sleep(0.6)  # longer than the patience of the receiver: it pauses
        assert held == 1
        assert await asyncio.to_thread(committed, cluster.brokers) == 0
        free.set()
        await until(lambda: len(taken) == count + 5)
    assert sorted(taken) == sorted([*map(float, range(count)), *map(float, range(5))])
    assert [value for value in taken if value > 5] == [float(number) for number in range(6, count)]
    assert largest <= 2 << 20
    assert dropped_by(receiver) == {}
    assert await asyncio.to_thread(committed, cluster.brokers) == count + 5


async def test_a_partition_that_left_during_a_pause_is_read_when_it_returns(
    cluster: MockCluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The second member takes half of the partitions of the paused first one, and gives them back after the pause."""
    monkeypatch.setattr(consuming, "_REVOKE", 0.2)
    monkeypatch.setattr(consuming, "_PATIENCE", 0.2)
    cluster.create_topic(METRICS, 4)
    free, never = asyncio.Event(), asyncio.Event()
    taken: list[float] = []

    async def emit(batch: Batch, *, transport: str = "") -> None:
        await free.wait()
        taken.extend(values_of([batch]))

    async def other(batch: Batch, *, transport: str = "") -> None:
        await never.wait()

    reader = InMemoryMetricReader()
    meter = MeterProvider([reader]).get_meter("test")

    def first(metric: str) -> int:
        return int(sum(values_of_metrics(reader).get(f"otelcol_kafka_receiver_{metric}", {}).values()))

    async with receiving(cluster.brokers, emit, meter=meter) as receiver:
        for number in (1, 2):  # one in the pipelines and one that waits
            await asyncio.to_thread(write, cluster.brokers, METRICS, batch_of(float(number)).bytes_of("metrics"))
            await until(lambda: first("records") == number)  # noqa: B023  # awaited at once
        async with receiving(cluster.brokers, other):
            await until(lambda: first("partition_close") == 2)
            free.set()
            for partition in range(4):
                value = batch_of(float(10 + partition)).bytes_of("metrics")
                await asyncio.to_thread(write, cluster.brokers, METRICS, value, partition=partition)
        await until(lambda: {10.0, 11.0, 12.0, 13.0} <= set(taken))
        assert dropped_by(receiver) == {}


async def test_at_most_once_commits_before_the_pipelines_take_a_record(cluster: MockCluster) -> None:
    """otelcol's default, on request."""
    write(cluster.brokers, METRICS, batch_of(1.0).bytes_of("metrics"))
    stuck = asyncio.Event()

    async def emit(batch: Batch, *, transport: str = "") -> None:
        await stuck.wait()

    async with receiving(cluster.brokers, emit, message_marking={"after": False}):
        await until(lambda: committed(cluster.brokers) == 1)


async def test_the_end_of_the_brokers_is_survived(cluster: MockCluster) -> None:
    write(cluster.brokers, METRICS, batch_of(1.0).bytes_of("metrics"))
    downstream = Downstream()
    async with receiving(cluster.brokers, downstream) as receiver:
        await until(lambda: values_of(downstream.batches) == [1.0])
        cluster.take_down()
        await until(lambda: receiver.context.health.problems)
        cluster.bring_up()
        await asyncio.to_thread(write, cluster.brokers, METRICS, batch_of(2.0).bytes_of("metrics"))
        await until(lambda: set(values_of(downstream.batches)) == {1.0, 2.0})
        await until(lambda: not receiver.context.health.problems)
