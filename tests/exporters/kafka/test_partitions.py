"""The choice of partitions."""

from otel_zernel.testing import FakeClock, make_context
from otel_zernel_exporters.kafka.sending import PartitionChoice
from otel_zernel_libraries.clients.kafka.producing import MessageProducer, OutgoingMessage


class GrowingTopics(MessageProducer):
    """Brokers whose topics come with their first message."""

    def __init__(self) -> None:
        super().__init__({}, make_context("exporters", "kafka"))
        self.partitions = 0

    async def partition_count(self, topic: str, within: float) -> int:
        return self.partitions


async def test_a_new_topic_uses_all_of_its_partitions_once_the_brokers_have_made_them() -> None:
    producer, clock = GrowingTopics(), FakeClock()
    choice = PartitionChoice("round_robin", 600.0, 1.0)
    messages = [OutgoingMessage("new", b"") for _ in range(3)]
    assert {one.partition for one in await choice.assign(messages, producer, clock)} == {-1}
    producer.partitions = 3
    assert {one.partition for one in await choice.assign(messages, producer, clock)} == {0, 1, 2}


async def test_messages_of_any_number_of_topics_get_partitions() -> None:
    producer = GrowingTopics()
    producer.partitions = 2
    messages = [OutgoingMessage(f"topic-{number}", b"") for number in range(5000)]
    found = await PartitionChoice("round_robin", 600.0, 1.0).assign(messages, producer, FakeClock())
    assert {one.partition for one in found} <= {-1, 0, 1}
    assert len(found) == 5000
