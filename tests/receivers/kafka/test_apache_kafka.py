"""Problems with Apache Kafka: each is one sentence in the health, and the receiver reads again when it is over."""

import asyncio
import logging
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Consumer
from opentelemetry.metrics import NoOpMeter

from otel_zernel.component import Emit
from otel_zernel.engine.pipelines.fan_out import FanOut
from otel_zernel.engine.receivers import SupervisedReceiver
from otel_zernel.errors import ReceiverFailed
from otel_zernel.telemetry import Instruments
from otel_zernel.testing import Downstream, until
from otel_zernel_receivers.kafka import KafkaReceiver
from tests.core.parts import batch_of, values_of
from tests.interop.kafka.broker import Broker, running_broker
from tests.libraries.clients.kafka.mock_cluster import write
from tests.receivers.kafka.receiving import receiver_of, receiving

PLACE = "receivers::kafka"


def options_of(topic: str, **more: Any) -> dict[str, Any]:
    """Each topic has a group of its own."""
    return {"metrics": {"topics": [topic]}, "group_id": topic, "session_timeout": "3s", **more}


async def failure_of(receiver: KafkaReceiver, emit: Emit | None = None) -> str:
    """The sentence with which the receiver ends."""
    with pytest.raises(ReceiverFailed) as failed:
        await asyncio.wait_for(receiver.run(emit or Downstream()), 60)
    return str(failed.value)


async def put(kafka: Broker, topic: str, value: float) -> None:
    await asyncio.to_thread(write, kafka.brokers, topic, batch_of(value).bytes_of("metrics"))


@contextmanager
def member_of(kafka: Broker, group: str, topic: str, strategy: str = "cooperative-sticky") -> Iterator[Consumer]:
    """Another client of the group. It lives while it is polled."""
    settings = {"bootstrap.servers": kafka.brokers[0], "group.id": group, "partition.assignment.strategy": strategy}
    consumer = Consumer({**settings, "session.timeout.ms": 30_000})
    consumer.subscribe([topic])
    try:
        yield consumer
    finally:
        consumer.close()


async def join(*members: Consumer) -> None:
    """Returns when each member has partitions."""
    while not all(member.assignment() for member in members):
        for member in members:
            await asyncio.to_thread(member.poll, 0.05)


async def test_a_member_whose_name_is_taken_ends_with_the_remedy(kafka: Broker) -> None:
    topic = kafka.topic()
    options = options_of(topic, group_instance_id="the-same")
    first, second = Downstream(), Downstream()
    await put(kafka, topic, 1.0)
    ending = asyncio.create_task(failure_of(receiver_of(kafka.brokers, **options), first))
    await until(lambda: values_of(first.batches) == [1.0])
    async with receiving(kafka.brokers, second, **options):
        assert await ending == (
            "another member of the group has the same group_instance_id: give each collector its own"
        )
        await put(kafka, topic, 2.0)
        await until(lambda: 2.0 in values_of(second.batches))


async def test_another_strategy_than_that_of_the_group_ends_with_the_remedy(kafka: Broker) -> None:
    topic = kafka.topic()
    with member_of(kafka, topic, topic, "range") as member:
        await join(member)
        sentence = await failure_of(receiver_of(kafka.brokers, **options_of(topic)))
    assert "give all the same group_rebalance_strategies, or choose another group_id" in sentence


async def test_a_session_timeout_that_the_broker_refuses_ends_with_the_remedy(kafka: Broker) -> None:
    """An hour is over the broker's group.max.session.timeout.ms."""
    sentence = await failure_of(receiver_of(kafka.brokers, **options_of(kafka.topic(), session_timeout="1h")))
    assert sentence.startswith("the broker refuses session_timeout: choose one between its group.min.session.timeout")


async def test_a_full_group_is_joined_when_a_member_has_left(kafka: Broker, caplog: pytest.LogCaptureFixture) -> None:
    """The receiver restarts with backoff, says once why, and is unhealthy meanwhile."""
    topic = kafka.topic(partitions=2)
    downstream = Downstream()
    with member_of(kafka, topic, topic) as one, member_of(kafka, topic, topic) as other:
        await join(one, other)
        receiver = receiver_of(kafka.brokers, **options_of(topic))
        restarts: list[None] = []
        running = asyncio.create_task(_supervised(receiver, downstream, restarts))
        await until(lambda: len(restarts) == 2)
        problem = receiver.context.health.problems[PLACE]
        assert problem.startswith("failed, restarts in ")
        assert "the group is full: stop a member, or raise group.max.size of the brokers" in problem
    await put(kafka, topic, 1.0)
    await until(lambda: values_of(downstream.batches) == [1.0])
    running.cancel()
    await asyncio.gather(running, return_exceptions=True)
    assert [record.levelname for record in caplog.records if "the group is full" in record.message] == ["ERROR"]


async def _supervised(receiver: KafkaReceiver, emit: Emit, restarts: list[None]) -> None:
    async def run_once(_: Emit) -> None:
        await KafkaReceiver(receiver.config, receiver.context).run(emit)

    fan_out = FanOut([], partial(Instruments(NoOpMeter("test")).receiver, "kafka"))
    await SupervisedReceiver(run_once, fan_out, receiver.context, lambda: restarts.append(None)).run()


@pytest.mark.parametrize("mechanism", ["PLAIN", "SCRAM-SHA-512"])
async def test_a_wrong_password_is_one_line_whatever_the_number_of_attempts(
    kafka: Broker, mechanism: str, caplog: pytest.LogCaptureFixture
) -> None:
    sasl = {"mechanism": mechanism, "username": "user", "password": "wrong-one"}
    options = options_of(kafka.topic(), auth={"sasl": sasl})
    with caplog.at_level(logging.DEBUG):
        async with receiving(kafka.sasl_brokers, Downstream(), **options) as receiver:
            # librdkafka writes a line for each attempt at debug level, and repeats it in 0.5 s or less.
            await until(lambda: caplog.text.count("SASL authentication error") > 12)
            problem = receiver.context.health.problems[PLACE]
    (line,) = [record.message for record in caplog.records if record.levelno >= logging.WARNING]
    assert line == f"Cannot read from {kafka.sasl_brokers[0]}: {problem}"
    assert problem.startswith("the broker refuses the credentials: check auth::sasl (")
    assert "wrong-one" not in caplog.text


async def test_the_right_password_opens_the_broker(kafka: Broker) -> None:
    topic, downstream = kafka.topic(), Downstream()
    await put(kafka, topic, 1.0)
    sasl = {"mechanism": "SCRAM-SHA-256", "username": "user", "password": "secret"}
    async with receiving(kafka.sasl_brokers, downstream, **options_of(topic, auth={"sasl": sasl})):
        await until(lambda: values_of(downstream.batches) == [1.0])


@pytest.fixture
def own_kafka(tmp_path: Path) -> Iterator[Broker]:
    """A broker that the test may end."""
    with running_broker(tmp_path) as broker:
        yield broker


async def test_an_outage_of_the_only_broker_is_described_as_one(
    own_kafka: Broker, caplog: pytest.LogCaptureFixture
) -> None:
    topic, downstream = own_kafka.topic(), Downstream()
    await put(own_kafka, topic, 1.0)
    with caplog.at_level(logging.INFO):
        async with receiving(own_kafka.brokers, downstream, **options_of(topic)) as receiver:
            await until(lambda: values_of(downstream.batches) == [1.0])
            own_kafka.kill()
            try:
                await until(lambda: "so it gave up" in caplog.text)
                problem = receiver.context.health.problems[PLACE]
            finally:
                await asyncio.to_thread(own_kafka.start)
            await put(own_kafka, topic, 2.0)
            await until(lambda: set(values_of(downstream.batches)) == {1.0, 2.0})
            await until(lambda: not receiver.context.health.problems)
    assert problem == "no broker can be reached: check brokers, and whether they run"
    assert "brokers are down" not in caplog.text
    assert f"have not reached each other for session_timeout, so it gave up {topic}[0]" in caplog.text
