"""librdkafka's mock cluster, with the faults that its C interface can cause. It comes with the wheel of its client."""

import ctypes
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final

import confluent_kafka
from confluent_kafka import Consumer, Message, Producer, TopicPartition

PRODUCE: Final = 0
"""The API keys of Kafka's protocol."""
JOIN_GROUP: Final = 11
INIT_PRODUCER_ID: Final = 22
_PRODUCER: Final = 0
_DELAY_MS: Final = 100
"""Time that a new group waits for members. The default of 3 s would slow down every test."""


def _library() -> Any:
    (path,) = (Path(confluent_kafka.__file__).parents[1] / "confluent_kafka.libs").glob("librdkafka*.so*")
    library = ctypes.CDLL(str(path))
    for name in ("conf_new", "new", "mock_cluster_new"):
        getattr(library, f"rd_kafka_{name}").restype = ctypes.c_void_p
    library.rd_kafka_mock_cluster_bootstraps.restype = ctypes.c_char_p
    return library


class MockCluster:
    """A cluster of brokers on ports of 127.0.0.1. It keeps 5 MiB of each partition."""

    def __init__(self, brokers: int) -> None:
        self._library = _library()
        configuration = ctypes.c_void_p(self._library.rd_kafka_conf_new())
        words = ctypes.create_string_buffer(512)
        self._library.rd_kafka_conf_set(configuration, b"log_level", b"0", words, ctypes.c_size_t(512))
        self._client = ctypes.c_void_p(self._library.rd_kafka_new(_PRODUCER, configuration, words, 512))
        assert self._client, words.value
        self._cluster = ctypes.c_void_p(self._library.rd_kafka_mock_cluster_new(self._client, brokers))
        self._library.rd_kafka_mock_group_initial_rebalance_delay_ms(self._cluster, _DELAY_MS)
        self.brokers = self._library.rd_kafka_mock_cluster_bootstraps(self._cluster).decode().split(",")

    def close(self) -> None:
        self._library.rd_kafka_mock_cluster_destroy(self._cluster)
        self._library.rd_kafka_destroy(self._client)

    def create_topic(self, topic: str, partitions: int) -> None:
        self._check(self._library.rd_kafka_mock_topic_create(self._cluster, topic.encode(), partitions, 1))

    def fail_next(self, api: int, *codes: int) -> None:
        """The next requests of this kind get these errors, one each."""
        array = (ctypes.c_int * len(codes))(*codes)
        self._library.rd_kafka_mock_push_request_errors_array(
            self._cluster, ctypes.c_int16(api), ctypes.c_size_t(len(codes)), array
        )

    def fail_topic(self, topic: str, code: int) -> None:
        """Every request for the topic gets this error."""
        self._library.rd_kafka_mock_topic_set_error(self._cluster, topic.encode(), code)

    def take_down(self, broker: int = 1) -> None:
        self._check(self._library.rd_kafka_mock_broker_set_down(self._cluster, broker))

    def bring_up(self, broker: int = 1) -> None:
        self._check(self._library.rd_kafka_mock_broker_set_up(self._cluster, broker))

    def _check(self, code: int) -> None:
        assert code == 0, code


@contextmanager
def mock_cluster(brokers: int = 1) -> Iterator[MockCluster]:
    cluster = MockCluster(brokers)
    try:
        yield cluster
    finally:
        cluster.close()


def messages_in(
    brokers: list[str], topic: str, enough: int | Callable[[list[Message]], bool], partitions: int = 4
) -> list[Message]:
    """The first messages of a topic, so many or until `enough`, read without a group.

    Raises `AssertionError` after 30 s.
    """
    is_enough = (lambda messages: len(messages) >= enough) if isinstance(enough, int) else enough
    options = {"group.id": "reader", "enable.auto.commit": False, "fetch.wait.max.ms": 10}
    consumer = Consumer({"bootstrap.servers": ",".join(brokers), **options})
    consumer.assign([TopicPartition(topic, partition, 0) for partition in range(partitions)])
    found: list[Message] = []
    try:
        until = time.monotonic() + 30
        while time.monotonic() < until:
            for message in consumer.consume(500, 0.1):
                assert message.error() is None, message.error()
                found.append(message)
                if is_enough(found):
                    return sorted(found, key=lambda one: (one.partition() or 0, one.offset() or 0))
    finally:
        consumer.close()
    raise AssertionError(f"only {len(found)} messages in {topic}")


def write(brokers: list[str], topic: str, *values: bytes | None, partition: int = 0, **more: Any) -> None:
    """Writes messages and waits for their confirmation."""
    producer = Producer({"bootstrap.servers": ",".join(brokers), "message.max.bytes": 10_000_000})
    for value in values:
        producer.produce(topic, value, partition=partition, **more)
    assert producer.flush(30) == 0


def count_of(brokers: list[str], topic: str, partitions: int = 4) -> int:
    """The number of messages that were ever written to a topic."""
    consumer = Consumer({"bootstrap.servers": ",".join(brokers), "group.id": "reader"})
    try:
        ends = [consumer.get_watermark_offsets(TopicPartition(topic, one), 10) for one in range(partitions)]
        return sum(end[1] for end in ends if end)
    finally:
        consumer.close()
