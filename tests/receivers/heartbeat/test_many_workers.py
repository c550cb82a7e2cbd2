"""A thousand workers, each with a connection of its own: all are known, the next one is refused, memory is bounded."""

import asyncio
from collections.abc import Iterator
from contextlib import AsyncExitStack

import psutil
import pytest

from otel_zernel.testing import Downstream
from otel_zernel.types import Address
from otel_zernel_libraries.cluster.messages import SEND_HEARTBEAT, Heartbeat, HeartbeatAck
from otel_zernel_libraries.serving.http2.wire import DATA
from tests.api_server import FakeApiServer
from tests.open_files import open_files
from tests.receivers.heartbeat.workers import mastering
from tests.receivers.otlp.http2.raw import REQUEST_HEADERS, RawClient, connected_to, request

WORKERS, AT_ONCE = 1000, 50
MOST_MEMORY = 150 << 20
"""Bytes for both ends of all connections, which are in this process."""
CALL = [(name, SEND_HEARTBEAT if name == ":path" else value) for name, value in REQUEST_HEADERS]


@pytest.fixture(autouse=True)
def enough_files() -> Iterator[None]:
    with open_files(4 * WORKERS):
        yield


class Worker:
    """A worker with a connection of its own."""

    def __init__(self, worker_id: str) -> None:
        self._message = Heartbeat(worker_id=worker_id, cpu_usage=50.0).SerializeToString()
        self._stream = -1
        self._client: RawClient

    async def connect(self, address: Address, stack: AsyncExitStack) -> bool:
        self._client = await stack.enter_async_context(connected_to(address))
        return await self.beat()

    async def beat(self) -> bool:
        """Whether the master accepts a heartbeat."""
        self._stream += 2
        await self._client.send(request(self._stream, self._message, CALL))
        answer = await self._client.until(DATA)
        return bool(HeartbeatAck.FromString(answer.payload[5:]).success)


async def test_a_thousand_connected_workers_are_known_and_one_more_is_refused() -> None:
    before = psutil.Process().memory_info().rss
    workers = [Worker(f"w{number}") for number in range(WORKERS)]
    groups = [workers[start : start + AT_ONCE] for start in range(0, WORKERS, AT_ONCE)]
    async with (
        mastering(Downstream(), max_workers=WORKERS, api=(api := FakeApiServer())) as receiver,
        AsyncExitStack() as stack,
    ):
        assert receiver.address
        for group in groups:
            assert all(await asyncio.gather(*(worker.connect(receiver.address, stack) for worker in group)))
        assert await Worker("one more").connect(receiver.address, stack) is False
        for _ in range(3):
            for group in groups:
                assert all(await asyncio.gather(*(worker.beat() for worker in group)))
        known = (await api.get("/telemetry")).json
        assert {*known} == {f"w{number}" for number in range(WORKERS)}
        assert all(worker["cpu_usage"] == 50 and worker["is_active"] for worker in known.values())
        assert psutil.Process().memory_info().rss - before < MOST_MEMORY
