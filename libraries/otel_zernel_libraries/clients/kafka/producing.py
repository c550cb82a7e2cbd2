"""A producer with a thread of its own. Messages are sent from the event loop, and their delivery is awaited there."""

import asyncio
import threading
from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import TYPE_CHECKING, Any, Final

from otel_zernel.component import Context
from otel_zernel.errors import CannotStart, Retryable
from otel_zernel_libraries.clients.kafka.failures import is_explained, kafka_reason
from otel_zernel_libraries.clients.kafka.properties import ClientLog, Properties

if TYPE_CHECKING:  # an optional package
    from confluent_kafka import KafkaError, Message, Producer

_POLL: Final = 0.2
"""Seconds that the thread waits for events of the client. Events end the wait at once."""
_ROOM: Final = 0.01
"""Seconds between attempts to add a message to the full queue of the client."""
_CLOSE: Final = 3.0
"""Seconds to wait for the end of the thread."""

Headers = Sequence[tuple[str, bytes]]


@dataclass(frozen=True, slots=True)
class OutgoingMessage:
    """One message for a topic."""

    topic: str
    value: bytes
    key: bytes | None = None
    headers: Headers = ()
    partition: int = -1
    """-1 lets the client choose it by the key."""
    source: Any = None
    """The origin of the message, for its sender."""


@dataclass(frozen=True, slots=True)
class UndeliveredMessage:
    """A message that the brokers did not confirm."""

    message: OutgoingMessage
    error: "KafkaError"


@dataclass(slots=True)
class _Shipment:
    """Messages that are awaited together. Only the event loop changes it."""

    done: asyncio.Future[list[UndeliveredMessage]]
    left: int
    undelivered: list[UndeliveredMessage] = field(default_factory=list)

    def settle(self, message: OutgoingMessage, error: "KafkaError | None") -> None:
        if error is not None:
            self.undelivered.append(UndeliveredMessage(message, error))
        self.left -= 1
        if self.left == 0 and not self.done.done():
            self.done.set_result(self.undelivered)


class MessageProducer:
    """Sends messages. `send` returns when the brokers have confirmed them.

    The client's queue is bounded: a sender waits for room. After a fatal error, which ends the client for good, the
    next `send` opens a new one.
    """

    def __init__(self, properties: Properties, context: Context) -> None:
        self._properties = properties
        self._context = context
        self._loop = asyncio.get_running_loop()
        self._reports: deque[tuple[_Shipment, OutgoingMessage, KafkaError | None]] = deque()
        self._opening = asyncio.Lock()
        self._producer: Producer | None = None
        self._thread: threading.Thread | None = None
        self._stop = threading.Event()
        self.problem = ""
        """The newest problem of the connection, in words; empty when a message has been confirmed since."""
        self._problem_code = 0
        self._is_broken = False

    async def open(self) -> None:
        """Starts the client. It connects in the background. Raises `CannotStart` if its settings are unusable."""
        async with self._opening:
            if self._producer is None or self._is_broken:
                await self.close()
                await self._open()

    async def _open(self) -> None:
        opened: asyncio.Future[Producer] = self._loop.create_future()
        self._stop = threading.Event()
        self._is_broken = False
        name = f"{self._context.path} producer"
        self._thread = threading.Thread(target=self._work, args=(opened, self._stop), name=name, daemon=True)
        self._thread.start()
        try:
            self._producer = await opened
        except asyncio.CancelledError:  # nobody will call close()
            self._stop.set()
            raise

    async def close(self) -> None:
        """Ends the client. Messages that are not confirmed are given up. Safe without `open`."""
        thread, self._thread, self._producer = self._thread, None, None
        if thread is not None:
            self._stop.set()
            await asyncio.to_thread(thread.join, _CLOSE)

    async def send(self, messages: Sequence[OutgoingMessage]) -> list[UndeliveredMessage]:
        """Returns when each message is confirmed or has failed; the result has the failed ones."""
        if not messages:
            return []
        if self._is_broken:
            await self.open()
        shipment = _Shipment(self._loop.create_future(), len(messages))
        for message in messages:
            await self._produce(message, shipment)
        return await shipment.done

    async def _produce(self, message: OutgoingMessage, shipment: _Shipment) -> None:
        from confluent_kafka import KafkaException

        while True:
            if self._producer is None:
                raise Retryable("the producer is closed")
            try:
                self._producer.produce(
                    message.topic,
                    message.value,
                    message.key,
                    message.partition,
                    headers=list(message.headers),
                    on_delivery=partial(self._reported, shipment, message),
                )
            except BufferError:
                await asyncio.sleep(_ROOM)
            except KafkaException as error:
                return shipment.settle(message, error.args[0])
            else:
                return None

    async def partition_count(self, topic: str, within: float) -> int:
        """The number of partitions of a topic. Raises `Retryable` if no broker says it `within` s."""
        from confluent_kafka import KafkaException

        producer = self._producer
        if producer is None:
            raise Retryable("the producer is closed")
        try:
            metadata = await asyncio.to_thread(producer.list_topics, topic, within)
        except KafkaException as error:
            raise Retryable(f"cannot list the partitions of {topic}: {kafka_reason(error.args[0])}") from error
        return len(metadata.topics[topic].partitions)

    # In the thread of the client.

    def _work(self, opened: "asyncio.Future[Producer]", stop: threading.Event) -> None:
        from confluent_kafka import KafkaException, Producer

        try:
            producer = Producer(
                {**self._properties, "error_cb": self._failed, "logger": ClientLog(self._context.logger)}
            )
        except (KafkaException, ValueError, TypeError) as error:
            words = kafka_reason(error.args[0]) if isinstance(error, KafkaException) else str(error)
            problem = CannotStart(f"{self._context.path}: Kafka's client refuses its settings: {words}")
            self._call(_set_exception, opened, problem)
            return
        self._call(_set_result, opened, producer)
        while not stop.is_set():
            self._poll(producer, _POLL)
            if self._is_broken:  # messages that it still gets fail at once
                producer.purge()
        producer.purge()
        self._poll(producer, 0)

    def _poll(self, producer: "Producer", seconds: float) -> None:
        """Waits for events. A fatal error, which ends the client for good, is raised by the client too."""
        from confluent_kafka import KafkaException

        try:
            producer.poll(seconds)
        except KafkaException as error:
            self._failed(error.args[0])
            self._is_broken = True
        if self._reports:
            self._call(self._settle)

    def _reported(
        self, shipment: _Shipment, message: OutgoingMessage, error: "KafkaError | None", _: "Message"
    ) -> None:
        self._reports.append((shipment, message, error))

    def _failed(self, error: "KafkaError") -> None:
        if not (self.problem and is_explained(error, self._problem_code)):
            self.problem = kafka_reason(error)
            self._problem_code = error.code()
        if error.fatal():
            self._is_broken = True
        self._context.logger.debug("Kafka's client: %s", kafka_reason(error))

    def _call(self, function: Any, *arguments: object) -> None:
        try:
            self._loop.call_soon_threadsafe(function, *arguments)
        except RuntimeError:  # the event loop has ended
            self._stop.set()

    # In the event loop.

    def _settle(self) -> None:
        reports = self._reports
        while reports:
            shipment, message, error = reports.popleft()
            if error is None:
                self.problem = ""
            shipment.settle(message, error)


def _set_exception(future: "asyncio.Future[Producer]", error: Exception) -> None:
    if not future.done():
        future.set_exception(error)


def _set_result(future: "asyncio.Future[Producer]", producer: "Producer") -> None:
    if not future.done():
        future.set_result(producer)
