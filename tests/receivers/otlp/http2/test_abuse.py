"""Clients that keep to the protocol and still want to exhaust the receiver: its memory, its room, its connections."""

import asyncio
import gc
import threading
import time
import tracemalloc
from collections.abc import AsyncIterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path

import pytest

from otel_zernel.protobuf import encode_field
from otel_zernel.testing import make_context, until
from otel_zernel.types import Address
from otel_zernel_libraries.serving.grpc import HEALTH, REFLECTION, HealthService
from otel_zernel_libraries.serving.http2 import Http2Limits, Http2Server, ServerParts
from otel_zernel_libraries.serving.http2.reading import HeaderDecoder
from otel_zernel_libraries.serving.http2.server import Http2Connection
from otel_zernel_libraries.serving.http2.wire import (
    DATA,
    HEADERS,
    INITIAL_WINDOW_SIZE,
    PING,
    PREFACE,
    RST_STREAM,
    frame,
    message_of,
    settings,
)
from otel_zernel_libraries.serving.requests.room import Room
from otel_zernel_libraries.serving.serving import listen
from tests.exporters.otlp.certificates import Authority
from tests.receivers.otlp.http2.raw import RawClient, connected, connected_to, headers_for, opening, request
from tests.receivers.otlp.serving import Recording, gauge, receiving

MESSAGE = gauge().SerializeToString()
UNAVAILABLE = 14
WATCH = headers_for(f"/{HEALTH}/Watch")


def test_many_different_header_blocks_take_no_memory() -> None:
    decoder, size = HeaderDecoder(), 3900
    decoder.decode(b"\x40\x01a\x7f" + bytes([(size - 127) & 127 | 128, (size - 127) >> 7]) + b"x" * size)
    tracemalloc.start()
    try:
        for number in range(40 * 40):  # the entries 15 to 54 of the static table are ordinary headers
            decoder.decode(bytes([0x8F + number % 40, 0x8F + number // 40]) + b"\xbe" * 7)
        kept, _ = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert kept < 1 << 20


async def test_failed_handshakes_leave_nothing_behind(tmp_path: Path) -> None:
    files = Authority(tmp_path).issue("localhost")
    tls = {"cert_file": files.cert_file, "key_file": files.key_file}
    async with receiving(Recording(), {"grpc": {"endpoint": "localhost:0", "tls": tls}}) as receiver:
        place = receiver.addresses["grpc"]
        assert isinstance(place, Address)
        for _ in range(20):
            reader, writer = await asyncio.open_connection(place.host, place.port)
            writer.write(b"GET / HTTP/1.1\r\n\r\n")
            await reader.read()
            writer.close()
        gc.collect()
        await until(lambda: not any(isinstance(item, Http2Connection) for item in gc.get_objects()))


async def test_watchers_of_the_health_do_not_take_the_room_of_requests() -> None:
    protocols = {"grpc": {"endpoint": "localhost:0"}}
    async with receiving(Recording(), protocols, max_in_flight_mib=9) as receiver, AsyncExitStack() as stack:
        for _ in range(5):
            watcher = await stack.enter_async_context(connected(receiver))
            await watcher.send(*(request(1 + 2 * index, b"", WATCH) for index in range(1000)))
            await _answered(watcher, 1999)
        sender = await stack.enter_async_context(connected(receiver))
        await sender.send(request(1, MESSAGE))
        assert await sender.status(1) == 0


async def test_a_reset_request_keeps_its_room_while_it_waits_for_a_thread() -> None:
    """Else a client that resets its requests could send more than `max_in_flight_mib` while the threads are busy."""
    asyncio.get_running_loop().set_default_executor(threads := ThreadPoolExecutor(1))
    large = encode_field(15, "x" * 900_000)
    gate = threading.Event()
    protocols = {"grpc": {"endpoint": "localhost:0"}}
    async with receiving(Recording(), protocols, max_in_flight_mib=3) as receiver, connected(receiver) as client:
        threads.submit(gate.wait, 20)
        try:
            await client.send(*(request(stream, large) for stream in (1, 3, 5)), frame(PING, 0, 0, bytes(8)))
            await client.until(PING)
            await client.send(*(frame(RST_STREAM, 0, stream, bytes(4)) for stream in (1, 3, 5)), request(7, large))
            assert await client.status(7) == UNAVAILABLE
        finally:
            gate.set()
        await asyncio.to_thread(int)  # behind the requests that were given up
        await client.send(request(9, large))
        assert await client.status(9) == 0


async def _answered(client: RawClient, stream: int) -> None:
    while (received := await client.receive()).stream != stream or received.kind not in (DATA, HEADERS):
        pass


async def test_a_watcher_of_the_health_gives_its_place_to_a_new_connection() -> None:
    async with _health_server(Http2Limits(connections=1)) as place, connected_to(place) as watcher:
        await watcher.send(request(1, b"", WATCH))
        await watcher.until(DATA)
        async with connected_to(place) as other:
            await other.send(request(1, b"", headers_for(f"/{HEALTH}/Check")))
            assert await other.status(1) == 0


@asynccontextmanager
async def _health_server(limits: Http2Limits) -> AsyncIterator[Address]:
    health, logger = HealthService([]), make_context("receivers", "otlp").logger
    methods = health.methods()
    room = Room(1 << 20, time.monotonic)
    parts = ServerParts(lambda headers: methods[headers[":path"]], room, limits, time.monotonic)
    server = Http2Server(parts, logger, None)
    listener = listen(Address("localhost", 0), "endpoint")
    async with server.serving([listener], health.stop):
        yield Address(*listener.getsockname()[:2])


@pytest.mark.parametrize("window", [0, 2**31 - 1], ids=["no window", "a large window"])
async def test_a_client_that_does_not_read_descriptions_gets_no_more_of_them(window: int) -> None:
    question = message_of(encode_field(4, "opentelemetry.proto.metrics.v1.Metric"))
    protocols = {"grpc": {"endpoint": "localhost:0"}}
    async with receiving(Recording(), protocols) as receiver, connected(receiver, greet=False) as client:
        await client.send(PREFACE, settings({INITIAL_WINDOW_SIZE: window}))
        asked = b"".join(frame(DATA, 0, 1, question * 100) for _ in range(10))
        await client.send(opening(1, headers_for(f"/{REFLECTION[0]}/ServerReflectionInfo")), asked)
        assert await client.status(1) == 14
