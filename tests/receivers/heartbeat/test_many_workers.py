"""A thousand workers, each with a connection of its own: all are known, the next one is refused, memory is bounded."""

import asyncio
from collections import deque
from collections.abc import Iterator

import psutil
import pytest

from otel_zernel.testing import Downstream
from otel_zernel.types import Address
from otel_zernel_libraries.cluster.messages import SEND_HEARTBEAT, Heartbeat, HeartbeatAck
from otel_zernel_libraries.serving.http2.wire import (
    ACK,
    DATA,
    END_HEADERS,
    END_STREAM,
    FRAME_HEAD,
    HEADERS,
    PREFACE,
    SETTINGS,
    encode_headers,
    frame,
    message_of,
    read_frame_head,
    settings,
)
from tests.api_server import FakeApiServer
from tests.open_files import open_files
from tests.receivers.heartbeat.workers import mastering

WORKERS, AT_ONCE = 1000, 50
MOST_MEMORY = 150 << 20
"""Bytes for both ends of all connections, which are in this process."""
FIELDS = {":method": "POST", ":scheme": "http", ":path": SEND_HEARTBEAT, "te": "trailers"}
CALL = encode_headers([*FIELDS.items(), ("content-type", "application/grpc")])
OPENING = PREFACE + settings({}) + frame(SETTINGS, ACK, 0)


@pytest.fixture(autouse=True)
def enough_files() -> Iterator[None]:
    with open_files(4 * WORKERS):
        yield


class HandWorker:
    """A worker that speaks HTTP/2 by hand."""

    def __init__(self, worker_id: str) -> None:
        self._message = Heartbeat(worker_id=worker_id, cpu_usage=50.0).SerializeToString()
        self._stream = -1
        self.writer: asyncio.StreamWriter | None = None

    async def connect(self, address: Address) -> bool:
        self._reader, self.writer = await asyncio.open_connection(address.host, address.port)
        self.writer.write(OPENING)
        return await self.beat()

    async def beat(self) -> bool:
        """Whether the master accepts a heartbeat."""
        assert self.writer
        self._stream += 2
        opening = frame(HEADERS, END_HEADERS, self._stream, CALL)
        self.writer.write(opening + frame(DATA, END_STREAM, self._stream, message_of(self._message)))
        answers: deque[bytes] = deque(maxlen=1)
        while True:
            length, kind, flags, stream = read_frame_head(await self._reader.readexactly(FRAME_HEAD), 0)
            payload = await self._reader.readexactly(length)
            if stream == self._stream and kind == DATA:
                answers.append(payload)
            if stream == self._stream and kind == HEADERS and flags & END_STREAM:
                return bool(HeartbeatAck.FromString(answers.pop()[5:]).success)


async def test_a_thousand_connected_workers_are_known_and_one_more_is_refused() -> None:
    before = psutil.Process().memory_info().rss
    workers = [HandWorker(f"w{number}") for number in range(WORKERS)]
    async with mastering(Downstream(), max_workers=WORKERS, api=(api := FakeApiServer())) as receiver:
        assert receiver.address
        for start in range(0, WORKERS, AT_ONCE):
            group = workers[start : start + AT_ONCE]
            assert all(await asyncio.gather(*(one.connect(receiver.address) for one in group)))
        surplus = HandWorker("one more")
        assert await surplus.connect(receiver.address) is False
        for _ in range(3):
            for start in range(0, WORKERS, AT_ONCE):
                assert all(await asyncio.gather(*(one.beat() for one in workers[start : start + AT_ONCE])))
        found = (await api.get("/telemetry")).json
        assert {*found} == {f"w{number}" for number in range(WORKERS)}
        assert all(one["cpu_usage"] == 50 and one["is_active"] for one in found.values())
        assert psutil.Process().memory_info().rss - before < MOST_MEMORY
        for one in (*workers, surplus):
            assert one.writer
            one.writer.transport.abort()
