"""The thread of the consumer: it polls, joins records to fetches, and stores the offsets of those that were taken."""

import asyncio
import threading
from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from google.protobuf.message import DecodeError as ProtobufDecodeError
from opentelemetry.proto.common.v1.common_pb2 import KeyValue

from otel_zernel.batch import Signal
from otel_zernel.batch.pieces import count_encoded
from otel_zernel.batch.signals import MESSAGE_TYPES
from otel_zernel.batch.thin import LEVELS, thin_type
from otel_zernel.component import Context
from otel_zernel.errors import CannotStart, DecodeError, ReceiverFailed
from otel_zernel.otlp.json import parse_json
from otel_zernel_libraries.clients.kafka.client_config import Encoding
from otel_zernel_libraries.clients.kafka.failures import kafka_reason
from otel_zernel_libraries.clients.kafka.properties import ClientLog, Properties
from otel_zernel_receivers.kafka.config import KafkaReceiverConfig
from otel_zernel_receivers.kafka.fetches import Fetch, FetchedPart, Fetches, TopicPartition, UndecodableRecord
from otel_zernel_receivers.kafka.measuring import ConsumerMetrics
from otel_zernel_receivers.kafka.problems import ConsumerProblems
from otel_zernel_receivers.kafka.topics import Topics

if TYPE_CHECKING:  # an optional package
    from confluent_kafka import Consumer, Message
    from confluent_kafka import TopicPartition as Offset

Headers = Sequence[tuple[str, bytes | None]]


@dataclass(frozen=True, slots=True)
class DecodedRecord:
    """The value of a record as an encoded message."""

    encoded: bytes
    items: int


def decode_record(
    signal: Signal, encoding: Encoding, value: bytes, temporalities: set[int], headers: Headers = ()
) -> DecodedRecord:
    """The message in a record, with these headers as attributes of its resources. Raises `DecodeError`.

    Adds the aggregation temporalities of its sums and histograms to `temporalities`.
    """
    encoded = parse_json(MESSAGE_TYPES[signal], value).SerializeToString() if encoding == "otlp_json" else value
    seen: set[int] = set()
    items = count_encoded(signal, encoded, temporalities=seen)
    if headers:
        encoded = _with_attributes(signal, encoded, headers)
    temporalities |= seen
    return DecodedRecord(encoded, items)


def chosen_headers(headers: Headers | None, names: Sequence[str]) -> Headers:
    """The headers with these names."""
    return [header for header in headers or () if header[0] in names] if names else ()


def _with_attributes(signal: Signal, encoded: bytes, headers: Headers) -> bytes:
    attributes = [_attribute(name, value).SerializeToString() for name, value in headers]
    try:
        message: Any = thin_type(signal).FromString(encoded)
    except ProtobufDecodeError as error:
        raise DecodeError(str(error)) from error
    for resource in getattr(message, LEVELS[signal][0]):
        resource.resource.attributes.extend(attributes)
    return bytes(message.SerializeToString())


def _attribute(name: str, value: bytes | None) -> KeyValue:
    attribute = KeyValue(key=f"kafka.header.{name}")
    attribute.value.string_value = (value or b"").decode("utf-8", "replace")
    return attribute


_POLL: Final = 0.1
"""Seconds that the thread waits for records. Then it stores offsets."""
_MOST_RECORDS: Final = 500
"""Records of one fetch."""
_MOST_BYTES: Final = 2 << 20
"""Bytes of one fetch. A larger record is a fetch of its own."""
_PATIENCE: Final = 1.0
"""Seconds without room for another fetch after which the partitions are paused. A pause costs a new fetch."""
_REVOKE: Final = 5.0
"""Seconds that a rebalance waits for the fetch in the pipelines."""
_WATCH: Final = 5.0
"""Seconds between two looks at the lag, and at the brokers after a problem."""
_LAST_COMMITS: Final = 10
"""Attempts to commit at the end."""
_REBALANCING: Final = frozenset({22, 27})
"""The generation of the group is over, or a rebalance is in progress."""
_LEAVING_POLLS: Final = 4
_LEAVING_POLL: Final = 0.05
"""Seconds. The callbacks of rebalances run meanwhile."""
_CLOSE: Final = 0.5
"""Seconds to wait for the end of the thread. The commit at its end goes on meanwhile."""


@dataclass(frozen=True, slots=True)
class Consumption:
    """What the thread of a consumer and the event loop share: the way of its records into the pipelines."""

    config: KafkaReceiverConfig
    topics: Topics
    fetches: Fetches
    metrics: ConsumerMetrics
    context: Context


class ConsumerThread:
    """Owns the consumer. Every method with an underscore runs in the thread."""

    def __init__(self, consumption: Consumption, properties: Properties, on_fetch: Callable[[Fetch], None]) -> None:
        """`on_fetch` is called in the event loop."""
        self._config = consumption.config
        self._topics = consumption.topics
        self._fetches = consumption.fetches
        self._metrics = consumption.metrics
        self._context = consumption.context
        self._properties = properties
        self._on_fetch = on_fetch
        self._loop = asyncio.get_running_loop()
        self.failed: asyncio.Future[None] = self._loop.create_future()
        """Raises `CannotStart` or `ReceiverFailed`."""
        self._stop = threading.Event()
        self._is_paused = False
        self._problems = ConsumerProblems(
            self._config, self._context, lambda problem: self._call(self._context.report, problem)
        )
        self._watch_at = 0.0
        self._thread = threading.Thread(target=self._run, name=f"{self._context.path} consumer", daemon=True)

    def start(self) -> None:
        self._thread.start()

    async def stop(self) -> None:
        """Commits, leaves the group and ends the thread, within `_CLOSE` s as far as this call goes."""
        self._stop.set()
        self._fetches.wake()
        if self._thread.ident is not None:
            await asyncio.to_thread(self._thread.join, _CLOSE)

    def _run(self) -> None:
        from confluent_kafka import KafkaException

        try:
            self._consume()
        except (CannotStart, ReceiverFailed) as error:
            self._call(self._fail, error)
        except KafkaException as error:
            self._call(self._fail, ReceiverFailed(kafka_reason(error.args[0])))
        except Exception as error:  # noqa: BLE001  # raised in the event loop
            self._call(self._fail, error)

    def _fail(self, error: Exception) -> None:
        if not self.failed.done():
            self.failed.set_exception(error)

    def _call(self, function: Callable[..., object], *arguments: object) -> None:
        try:
            self._loop.call_soon_threadsafe(function, *arguments)
        except RuntimeError:  # the event loop has ended
            self._stop.set()

    def _consume(self) -> None:
        consumer = self._open()
        try:
            consumer.subscribe(
                self._topics.subscription, on_assign=self._assigned, on_revoke=self._revoked, on_lost=self._lost
            )
            while not self._stop.is_set():
                self._step(consumer)
        finally:
            self._store_taken(consumer)
            self._commit_rest(consumer)
            if not self._config.group_instance_id:  # a static member stays in the group
                _leave_group(consumer)
            consumer.close()
            self._metrics.clear()

    def _open(self) -> "Consumer":
        from confluent_kafka import Consumer, KafkaException

        try:
            return Consumer(
                {**self._properties, "error_cb": self._problems.take, "logger": ClientLog(self._context.logger)}
            )
        except (KafkaException, ValueError, TypeError) as error:
            words = kafka_reason(error.args[0]) if isinstance(error, KafkaException) else str(error)
            raise CannotStart(f"{self._context.path}: Kafka's client refuses its settings: {words}") from error

    def _step(self, consumer: "Consumer") -> None:
        self._store_taken(consumer)
        self._make_room(consumer)
        if (first := consumer.poll(_POLL)) is not None:
            more = [] if self._is_paused else consumer.consume(_MOST_RECORDS - 1, 0)
            self._take_messages(consumer, [first, *more])
        if self._context.clock.monotonic() >= self._watch_at:
            self._watch_at = self._context.clock.monotonic() + _WATCH
            self._metrics.watch(consumer)
            self._problems.look(consumer)

    def _make_room(self, consumer: "Consumer") -> None:
        """Pauses the partitions while the pipelines take nothing. The thread polls on, so the group keeps it."""
        is_full = not self._fetches.wait_for_room(0.0 if self._is_paused else _PATIENCE)
        if is_full != self._is_paused:
            self._is_paused = is_full
            change = consumer.pause if is_full else consumer.resume
            change([partition for partition in consumer.assignment() if self._topics.signal_of(partition.topic)])

    def _take_messages(self, consumer: "Consumer", messages: "Sequence[Message]") -> None:
        open_fetches: dict[str, Fetch] = {}
        for message in messages:
            if (error := message.error()) is not None:
                self._problems.take(error, message.topic() or "")
                continue
            signal = self._topics.signal_of(message.topic() or "")
            if signal is None:
                self._pass_over(message.topic() or "")
                continue
            size = len(message.value() or b"")
            fetch = open_fetches.get(signal)
            if fetch is not None and fetch.size + size > _MOST_BYTES:
                self._hand_over(consumer, open_fetches.pop(signal))
                fetch = None
            if fetch is None:
                fetch = open_fetches[signal] = Fetch(signal)
            self._add_record(fetch, message)
        for fetch in open_fetches.values():
            self._hand_over(consumer, fetch)

    def _pass_over(self, topic: str) -> None:
        self._context.drop(1, "unknown_topic")
        self._context.logger.warning("Dropped a record of %s: no entry of `topics` matches this topic", topic)

    def _add_record(self, fetch: Fetch, message: "Message") -> None:
        topic, partition, offset = message.topic() or "", message.partition() or 0, message.offset() or 0
        part = fetch.part((topic, partition), offset)
        part.next_offset, part.records = offset + 1, part.records + 1
        fetch.records += 1
        value = message.value()
        if value is None:  # a tombstone of a compacted topic
            return
        headers: Any = message.headers()
        names = self._config.header_extraction.names
        encoding = self._config.topics_of(fetch.signal).encoding
        try:
            record = decode_record(fetch.signal, encoding, value, part.temporalities, chosen_headers(headers, names))
        except DecodeError as error:
            key: Any = message.key()
            part.undecodable.append(
                UndecodableRecord(topic, partition, offset, key, value, tuple(headers or ()), str(error))
            )
            return
        part.values.append(record.encoded)
        part.items += record.items
        fetch.size += len(record.encoded)

    def _hand_over(self, consumer: "Consumer", fetch: Fetch) -> None:
        self._metrics.fetched(fetch)
        if not self._config.message_marking.after:
            self._store(consumer, fetch.parts.values())
        self._fetches.add(fetch)
        self._call(self._on_fetch, fetch)
        self._problems.solved()

    def _store_taken(self, consumer: "Consumer") -> None:
        if taken := self._fetches.pop_taken():
            self._metrics.took(taken)
            if self._config.message_marking.after:
                self._store(consumer, taken)

    def _store(self, consumer: "Consumer", parts: Iterable[FetchedPart]) -> None:
        """Marks the records as taken. The fetches of a partition come in order, so the last offset is the end."""
        from confluent_kafka import KafkaException
        from confluent_kafka import TopicPartition as Offset

        ends = {part.place: part.next_offset for part in parts}
        offsets = [Offset(topic, partition, end) for (topic, partition), end in ends.items()]
        try:
            if self._config.autocommit.enable:
                consumer.store_offsets(offsets=offsets)
            else:
                consumer.commit(offsets=offsets, asynchronous=True)
        except KafkaException as error:  # a partition that has gone meanwhile
            self._context.logger.debug("Offsets cannot be stored: %s", kafka_reason(error.args[0]))

    def _commit_rest(self, consumer: "Consumer") -> None:
        """Commits at the end. While the group rebalances, brokers refuse it: the poll lets the rebalance go on."""
        from confluent_kafka import KafkaException

        for _ in range(_LAST_COMMITS if self._config.autocommit.enable else 0):
            try:
                consumer.commit(asynchronous=False)
                return
            except KafkaException as error:
                if error.args[0].code() not in _REBALANCING:
                    return
            consumer.poll(_POLL)

    # Changes of the group. librdkafka commits the stored offsets when these functions have returned.

    def _assigned(self, consumer: "Consumer", partitions: "list[Offset]") -> None:
        paused = [
            partition for partition in partitions if self._is_paused or not self._topics.signal_of(partition.topic)
        ]
        if paused:  # the poll that called this must not return their records
            is_cooperative = "cooperative-sticky" in self._config.group_rebalance_strategies
            (consumer.incremental_assign if is_cooperative else consumer.assign)(partitions)
            consumer.pause(paused)
        self._metrics.assigned(_places(partitions))
        self._context.logger.info("The group assigned %s", _names(partitions))
        self._problems.solved()

    def _revoked(self, consumer: "Consumer", partitions: "list[Offset]") -> None:
        places = _places(partitions)
        if not self._stop.is_set():
            self._fetches.let_go(places, _REVOKE)
        self._store_taken(consumer)
        self._leave(consumer, partitions)
        self._context.logger.info("The group took back %s", _names(partitions))

    def _lost(self, consumer: "Consumer", partitions: "list[Offset]") -> None:
        """The member is no longer in the group, as far as it knows: nothing can be committed."""
        self._leave(consumer, partitions)
        self._context.logger.warning(
            "This member and the broker of its group have not reached each other for session_timeout, so it gave up %s:"
            " records since the last commit are read again, here or by another member",
            _names(partitions),
        )

    def _leave(self, consumer: "Consumer", partitions: "list[Offset]") -> None:
        places = _places(partitions)
        self._fetches.disown(places)
        self._metrics.left(places)
        if self._is_paused:  # the client keeps the pause of a partition that comes back
            consumer.resume(partitions)


def _leave_group(consumer: "Consumer") -> None:
    """Gives all partitions back. If a rebalance comes while `close` runs, librdkafka may wait in it for ever, with the
    GIL held (https://github.com/confluentinc/librdkafka/issues/4884)."""
    from confluent_kafka import KafkaException

    with suppress(KafkaException):
        consumer.unsubscribe()
        for _ in range(_LEAVING_POLLS):
            consumer.poll(_LEAVING_POLL)
            if not consumer.assignment():
                return


def _places(partitions: "Iterable[Offset]") -> set[TopicPartition]:
    return {(partition.topic, partition.partition) for partition in partitions}


def _names(partitions: "Iterable[Offset]") -> str:
    return ", ".join(sorted(f"{partition.topic}[{partition.partition}]" for partition in partitions))
