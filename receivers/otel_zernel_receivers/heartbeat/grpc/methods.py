"""The methods of `cluster.MasterWorker`: credentials first, then the message."""

import asyncio
from collections import Counter, deque
from collections.abc import Callable
from typing import Any, Final

from otel_zernel.authentication import ServerAuthenticator
from otel_zernel_libraries.cluster.messages import REGISTER_WORKER, SEND_HEARTBEAT, STREAM_HEARTBEATS, HeartbeatAck
from otel_zernel_libraries.serving.http2 import Call, Method
from otel_zernel_libraries.serving.requests.decompression import decompress
from otel_zernel_libraries.serving.requests.failures import RequestFailure, check_credentials, unexpected, unsupported
from otel_zernel_receivers.heartbeat.config import HeartbeatReceiverConfig
from otel_zernel_receivers.heartbeat.fleet.fleet import Fleet
from otel_zernel_receivers.heartbeat.fleet.sender import WorkerSender, sender_of

COMPRESSIONS: Final = ("gzip", "deflate", "zstd")
_ACKS: Final = {success: HeartbeatAck(success=success).SerializeToString() for success in (True, False)}
_WORKER_ID: Final = b"\x0a"
"""The key of field 1, a text."""
Handle = Callable[[Call, bytes], bool]
"""Handles a message, and returns whether it is accepted. Raises `RequestFailure`."""


class HeartbeatCounts:
    """Requests since they were last counted: a counter of OpenTelemetry takes as long as a heartbeat."""

    def __init__(self) -> None:
        self.received: Counter[str] = Counter()
        """Heartbeats by method."""
        self.refused: Counter[str] = Counter()
        """Requests by reason."""


class MessageReader:
    """Decompresses the messages of workers."""

    def __init__(self, max_message: int) -> None:
        self._max_message = max_message

    def plain(self, call: Call, message: bytes) -> bytes:
        """The message without its compression. Raises `RequestFailure`. A message of 1 MiB takes 2 ms."""
        if not call.encoding or call.encoding == "identity":
            return message
        if call.encoding not in COMPRESSIONS:
            known = ", ".join(COMPRESSIONS)
            raise unsupported(f"grpc-encoding {call.encoding:.100} is not supported; use {known}")
        return decompress(call.encoding, message, self._max_message, "max_recv_msg_size_mib")


class CallMethod:
    """Answers the message of a call as soon as the credentials are checked."""

    streams = False

    def __init__(
        self,
        handle: Handle,
        reader: MessageReader,
        authenticator: ServerAuthenticator | None,
        counts: HeartbeatCounts,
    ) -> None:
        self._handle = handle
        self._reader = reader
        self._authenticator = authenticator
        self._counts = counts
        self._early: dict[Call, deque[bytes]] = {}
        """The latest message of each call whose credentials are being checked."""

    def begin(self, call: Call) -> None:
        if self._authenticator:
            self._early[call] = deque(maxlen=1)
            call.task = asyncio.create_task(self._authenticate(call, self._authenticator), name="worker credentials")

    def received(self, call: Call, message: bytes) -> None:
        plain = self._reader.plain(call, message)
        if (early := self._early.get(call)) is not None:
            call.hold.add(len(plain))  # until the call ends
            early.append(plain)
        else:
            self._take(call, plain)

    def ended(self, call: Call) -> None:
        """`received` has answered."""

    def failed(self, failure: RequestFailure) -> None:
        self._counts.refused[failure.reason] += 1

    def _take(self, call: Call, message: bytes) -> None:
        call.succeed(_ACKS[self._handle(call, message)])

    async def _authenticate(self, call: Call, authenticator: ServerAuthenticator) -> None:
        try:
            await check_credentials(authenticator, call.headers)
        except RequestFailure as failure:
            call.fail(failure)
        except Exception:
            call.fail(unexpected())
            raise
        finally:
            early = self._early.pop(call, deque())
        if not call.closed:
            self._go_on(call, early)

    def _go_on(self, call: Call, early: deque[bytes]) -> None:
        try:
            for message in early:
                self._take(call, message)
            if call.half_closed:
                self.ended(call)
        except RequestFailure as failure:
            call.fail(failure)


class StreamMethod(CallMethod):
    """Answers each message of a stream, after everything that was read from its connection.

    A worker may send thousands at once. Only the latest `queue_size` of each worker are decoded, since older ones would
    not find room in its queue either.
    """

    streams = True

    def __init__(self, *arguments: Any, queue_size: int, skipped: Callable[[], None]) -> None:
        """`skipped` counts a heartbeat that is not decoded. The others are those of `CallMethod`."""
        super().__init__(*arguments)
        self._queue_size = queue_size
        self._skipped = skipped
        self._waiting: dict[tuple[Call, bytes], deque[bytes]] = {}
        """By call and the encoded id of the worker."""

    def ended(self, call: Call) -> None:
        if call not in self._early:
            self._answer_all()
            call.succeed()

    def _take(self, call: Call, message: bytes) -> None:
        if not self._waiting:
            call.later(self._answer_all)
        key = (call, _encoded_id(message))
        queue = self._waiting.get(key)
        if queue is None:
            queue = self._waiting[key] = deque()
        elif len(queue) >= self._queue_size:
            queue.popleft()
            self._skipped()
            call.send(_ACKS[True])
        queue.append(message)

    def _answer_all(self) -> None:
        waiting, self._waiting = self._waiting, {}
        for (call, _), queue in waiting.items():
            try:
                for message in queue:
                    if not call.closed:
                        call.send(_ACKS[self._handle(call, message)])
            except RequestFailure as failure:
                call.fail(failure)


def _encoded_id(message: bytes) -> bytes:
    """The first field of a heartbeat, if it is a short `worker_id`, without decoding the rest."""
    return message[: 2 + message[1]] if message[:1] == _WORKER_ID and len(message) > 1 else b""


def methods_of(
    fleet: Fleet, authenticator: ServerAuthenticator | None, config: HeartbeatReceiverConfig, counts: HeartbeatCounts
) -> dict[str, Method]:
    """The methods by path."""
    reader = MessageReader(config.max_recv_msg_size_mib << 20)

    def sender(call: Call) -> WorkerSender:
        return sender_of(call, is_checked=authenticator is not None)

    def register(call: Call, message: bytes) -> bool:
        return fleet.register(message, sender(call))

    def beat(call: Call, message: bytes) -> bool:
        counts.received["call"] += 1
        return fleet.beat(message, sender(call))

    def beat_by_stream(call: Call, message: bytes) -> bool:
        counts.received["stream"] += 1
        return fleet.beat(message, sender(call), call)

    def skipped() -> None:
        counts.received["stream"] += 1
        fleet.dropped["queue_full"] += 1

    stream = StreamMethod(beat_by_stream, reader, authenticator, counts, queue_size=config.queue_size, skipped=skipped)
    return {
        REGISTER_WORKER: CallMethod(register, reader, authenticator, counts),
        SEND_HEARTBEAT: CallMethod(beat, reader, authenticator, counts),
        STREAM_HEARTBEATS: stream,
    }
