"""Members that join and leave a group under load: nothing is lost, and little is doubled."""

import asyncio
import sys
import threading
from collections import Counter
from contextlib import AsyncExitStack

import pytest
from confluent_kafka import Producer

from otel_zernel.batch import Batch
from otel_zernel.errors import ReceiverFailed
from otel_zernel.testing import until
from tests.core.parts import batch_of, values_of
from tests.libraries.clients.kafka.mock_cluster import JOIN_GROUP, MockCluster, write
from tests.receivers.kafka.receiving import METRICS, committed, receiver_of, receiving

PARTITIONS = 12


class SlowPipelines:
    """Takes a batch after a moment, so that rebalances meet batches on their way."""

    def __init__(self, seconds: float = 0.02) -> None:
        self.taken: list[float] = []
        self._seconds = seconds

    async def __call__(self, batch: Batch, *, transport: str = "") -> None:
        values = values_of([batch])
        await asyncio.sleep(self._seconds)
        self.taken += values


def _load(brokers: list[str], stop: threading.Event) -> int:
    """Writes numbered points over all partitions until the end. Returns their number."""
    producer = Producer({"bootstrap.servers": ",".join(brokers)})
    number = 0
    while not stop.wait(0.02):
        for partition in range(PARTITIONS):
            producer.produce(METRICS, batch_of(float(number)).bytes_of("metrics"), partition=partition)
            number += 1
    assert producer.flush(30) == 0
    return number


@pytest.mark.parametrize("code", [23, 24, 26, 81])
async def test_a_group_that_refuses_the_member_ends_the_receiver_with_a_remedy(cluster: MockCluster, code: int) -> None:
    cluster.create_topic(METRICS, 1)
    cluster.fail_next(JOIN_GROUP, *[code] * 3)
    with pytest.raises(ReceiverFailed, match=r"group_rebalance_strategies|group_id|session_timeout|group.max.size"):
        await asyncio.wait_for(receiver_of(cluster.brokers).run(SlowPipelines()), 60)


async def test_three_members_that_come_and_go_lose_nothing(
    cluster: MockCluster, capsys: pytest.CaptureFixture[str]
) -> None:
    cluster.create_topic(METRICS, PARTITIONS)
    members = [SlowPipelines() for _ in range(3)]
    stop = threading.Event()
    loading = asyncio.create_task(asyncio.to_thread(_load, cluster.brokers, stop))

    def seen() -> Counter[float]:
        return Counter(value for member in members for value in member.taken)

    try:
        async with receiving(cluster.brokers, members[0]):
            await until(lambda: len(members[0].taken) > 20)
            async with receiving(cluster.brokers, members[1]):
                await until(lambda: len(members[1].taken) > 20)
                async with receiving(cluster.brokers, members[2]):
                    await until(lambda: len(members[2].taken) > 20)
            stop.set()
            written = await loading
            await until(lambda: len(seen()) == written)
            await until(lambda: committed(cluster.brokers, METRICS, PARTITIONS) == written)
    finally:
        stop.set()
        await loading
    found = seen()
    assert set(found) == {float(number) for number in range(written)}
    with capsys.disabled():
        sys.stdout.write(f"\n{written} records, {found.total() - written} doubled by 4 rebalances ")


async def test_a_batch_that_the_pipelines_refuse_leaves_with_its_partition(cluster: MockCluster) -> None:
    """The first member cannot deliver. The second one gets some partitions, with the records that were refused."""
    from otel_zernel.errors import Refused

    cluster.create_topic(METRICS, PARTITIONS)
    for number in range(PARTITIONS):
        write(cluster.brokers, METRICS, batch_of(float(number)).bytes_of("metrics"), partition=number)
    is_stuck, offered = True, 0
    first: list[float] = []
    second = SlowPipelines(0)

    async def stuck(batch: Batch, *, transport: str = "") -> None:
        nonlocal offered
        offered += 1
        if is_stuck:
            raise Refused("the queue is full")
        first.extend(values_of([batch]))

    options = {"error_backoff": {"initial_interval": "10ms", "max_interval": "20ms"}}
    async with AsyncExitStack() as stack:
        await stack.enter_async_context(receiving(cluster.brokers, stuck, **options))
        await until(lambda: offered)
        await stack.enter_async_context(receiving(cluster.brokers, second))
        await until(lambda: len(second.taken) == PARTITIONS // 2)
        is_stuck = False
        await until(lambda: len(first) == PARTITIONS // 2)
        await until(lambda: committed(cluster.brokers, METRICS, PARTITIONS) == PARTITIONS)
    assert sorted([*first, *second.taken]) == [float(number) for number in range(PARTITIONS)]
