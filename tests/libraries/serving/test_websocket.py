"""WebSockets: a foreign client is served, and a hostile one costs little. On both event loops.

Long WebSocket messages: readers get them whole, and clients that read nothing hold one fragment each.
"""

import asyncio
import base64
import contextlib
import os
import socket
import tracemalloc
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

import pytest
import websockets
from websockets.asyncio.client import ClientConnection, connect

from otel_zernel.testing import until
from otel_zernel.types import Address
from otel_zernel_libraries.serving.limits import ServerLimits
from otel_zernel_libraries.serving.serving import serve
from tests.libraries.serving.clients import GET, served
from tests.libraries.serving.conftest import ON_BOTH_LOOPS
from tests.libraries.serving.frames import (
    BINARY,
    CONTINUATION,
    PING,
    TEXT,
    Echo,
    close_code,
    connected,
    echoing,
    frame,
    handshake,
    raw,
)

pytestmark = ON_BOTH_LOOPS


@pytest.fixture
def echo() -> Echo:
    return Echo()


async def test_a_foreign_client_gets_its_messages_back(echo: Echo) -> None:
    async with echoing(echo) as address, connected(address) as client:
        for message in ("", "hello", "€" * 10_000, b"\0\xff" * 30_000):
            await client.send(message)
            assert await client.recv() == message
        await client.send(["in ", "three ", "pieces"])
        assert await client.recv() == "in three pieces"
        assert await (await client.ping()) >= 0
        assert client.response
        assert "Sec-WebSocket-Extensions" not in client.response.headers
        await client.close(4000)
        await until(lambda: echo.codes == [4000])


async def test_a_server_without_websockets_answers_by_http() -> None:
    async with served(Echo()) as address:
        with pytest.raises(websockets.InvalidStatus, match="200"):
            await connected(address)


async def test_the_end_of_the_server_closes_a_websocket_at_once(echo: Echo) -> None:
    async with contextlib.AsyncExitStack() as stack:
        async with echoing(echo) as address:
            client = await stack.enter_async_context(connected(address))
            await until(lambda: echo.open)
        with pytest.raises(websockets.ConnectionClosed) as closed:
            await client.recv()
        assert closed.value.rcvd
        assert closed.value.rcvd.code == 1012
        await until(lambda: not echo.open)


async def test_a_client_that_goes_without_a_word_is_noticed(echo: Echo) -> None:
    async with echoing(echo) as address:
        async with raw(address):
            await until(lambda: echo.open == 1)
        await until(lambda: echo.open == 0)


@pytest.mark.parametrize(
    ("sent", "code"),
    [
        (frame(TEXT, length=(1 << 16) + 1), 1009),
        (frame(TEXT, length=(1 << 63) - 1), 1009),
        (frame(TEXT, b"x" * 40_000, end=False) + frame(CONTINUATION, b"x" * 40_000), 1009),
        (frame(TEXT, b"\xff\xfe"), 1007),
        (frame(TEXT, b"\xe2\x82", end=False) + frame(CONTINUATION, b"x"), 1007),
        (frame(CONTINUATION, b"x"), 1002),
        (frame(3), 1002),
        (frame(PING, b"x" * 126), 1002),
        (b"\x81\x01x" + b"y" * 10, 1002),
        (b"\xf1\x80\0\0\0\0", 1002),
        (frame(BINARY) * 30_000, 1008),
    ],
    ids=[
        *("too large", "giant", "too large in fragments", "no UTF-8", "cut character", "no beginning"),
        *("unknown opcode", "long ping", "not masked", "reserved bits", "thirty thousand at once"),
    ],
)
async def test_a_violation_closes_the_connection_with_the_code_of_the_standard(
    echo: Echo, sent: bytes, code: int
) -> None:
    async with echoing(echo) as address, raw(address) as (reader, writer):
        writer.write(sent)
        assert await close_code(reader) == code
        await until(lambda: not echo.open)


@pytest.mark.parametrize(
    ("request_", "status"),
    [
        (handshake("/", b"sec-websocket-key: twice"), b"400"),
        (handshake().replace(b"version: 13", b"version: 8"), b"400"),
        (handshake("/\xff"), b"400"),
        (handshake("/", b"x: " + b"y" * 9000), b"431"),
        (handshake("/", *[b"x: y"] * 200), b"431"),
        (handshake("/", b"x: " + b"y" * 70_000), b"431"),
        (handshake() + frame(TEXT, b"too early"), b"400"),
    ],
    ids=["two keys", "old version", "path", "long header", "many headers", "long head", "early frame"],
)
async def test_a_handshake_that_is_wrong_gets_an_error(request_: bytes, status: bytes) -> None:
    async with echoing(Echo()) as address:
        reader, writer = await asyncio.open_connection(address.host, address.port)
        writer.write(request_)
        assert (await reader.readline()).split(b" ")[1] == status
        await reader.read()
        writer.close()


async def test_an_upgrade_by_post_or_behind_another_request_is_ignored() -> None:
    async with echoing(Echo()) as address:
        reader, writer = await asyncio.open_connection(address.host, address.port)
        writer.write(handshake().replace(b"GET", b"POST"))
        assert b" 200 " in await reader.readline()
        writer.close()


async def test_a_websocket_may_follow_another_request() -> None:
    async with echoing(Echo()) as address:
        reader, writer = await asyncio.open_connection(address.host, address.port)
        writer.write(GET)
        assert b" 200 " in await reader.readline()
        await reader.readuntil(b"http")
        writer.write(handshake())
        assert b" 101 " in await reader.readuntil(b"\r\n\r\n")
        writer.write(frame(TEXT, b"hi"))
        assert await reader.readexactly(4) == b"\x81\x02hi"
        writer.close()


async def test_a_frame_before_the_answer_of_the_handshake_ends_the_connection(echo: Echo) -> None:
    async with echoing(echo) as address, raw(address, "/silent") as (reader, writer):
        await until(lambda: echo.silent)
        writer.write(frame(3))
        with contextlib.suppress(ConnectionError):
            assert await reader.read() == b""


@pytest.mark.parametrize("sent", [b"\x81", b"\x81\xfe\xff\xff\0\0\0\0half"], ids=["half a head", "half a frame"])
async def test_a_client_that_stops_in_a_frame_is_disconnected(echo: Echo, sent: bytes) -> None:
    async with echoing(echo, ping_interval=0.1, ping_timeout=0.1) as address, raw(address) as (reader, writer):
        writer.write(sent)
        assert await close_code(reader) == 1011
        await until(lambda: not echo.open)


@contextmanager
def allocating_at_most(size: int) -> Iterator[None]:
    """Python allocates so many bytes at once. Unlike resident memory, that does not depend on earlier tests."""
    tracemalloc.start()
    try:
        yield
        assert tracemalloc.get_traced_memory()[1] < size
    finally:
        tracemalloc.stop()


async def test_a_client_that_reads_nothing_is_disconnected_and_costs_little(echo: Echo) -> None:
    with allocating_at_most(64 << 20):
        async with echoing(echo, write_time=0.5, ping_interval=60) as address, raw(address) as (_, writer):
            with contextlib.suppress(ConnectionError):
                for _ in range(200):
                    writer.write(frame(TEXT, b"big") + frame(PING, b"x" * 125) * 300)
                    await asyncio.wait_for(writer.drain(), 30)
            await until(lambda: not echo.open)


@pytest.mark.asyncio(loop_factories=["uvloop"])  # counting takes long, and the loop does not matter
async def test_empty_fragments_without_an_end_take_no_memory() -> None:
    with allocating_at_most(16 << 20):  # the fragments that are underway take 6 MiB
        async with echoing(Echo(), ping_interval=60) as address, raw(address) as (reader, writer):
            writer.write(frame(TEXT, b"a", end=False))
            for _ in range(20):
                writer.write(frame(CONTINUATION, end=False) * 5_000)
                await writer.drain()
            writer.write(frame(CONTINUATION, b"b"))
            assert await reader.readexactly(4) == b"\x81\x02ab"


async def test_all_places_are_served_and_the_next_client_gets_503(echo: Echo) -> None:
    async with contextlib.AsyncExitStack() as stack, echoing(echo, connections=200) as address:
        clients: list[ClientConnection] = []
        for _ in range(20):
            new = (stack.enter_async_context(connected(address, proxy=None)) for _ in range(10))
            clients += await asyncio.gather(*new)
        with pytest.raises(websockets.InvalidStatus, match="503"):
            await connected(address)
        await asyncio.gather(*(client.send(str(number)) for number, client in enumerate(clients)))
        assert await asyncio.gather(*(client.recv() for client in clients)) == [str(one) for one in range(200)]
        await asyncio.gather(*(client.close() for client in clients))
        await until(lambda: not echo.open)


LONG = "é" + "x" * 3_000_000
STALLED = 60
LIMITS = ServerLimits(connections=200, message_size=4096, write_buffer=4096, send_buffer=16384)
_HANDSHAKE = (
    b"GET / HTTP/1.1\r\nhost: localhost\r\nupgrade: websocket\r\nconnection: upgrade\r\n"
    b"sec-websocket-version: 13\r\nsec-websocket-key: %s\r\n\r\n"
)


class Feed:
    """Sends one long message to each client."""

    def __init__(self) -> None:
        self.begun = 0
        self.all_begun = asyncio.Event()

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        await receive()
        await send({"type": "websocket.accept"})
        self.begun += 1
        if self.begun == STALLED:
            self.all_begun.set()
        await send({"type": "websocket.send", "text": LONG})
        await receive()


def memory() -> int:
    """Bytes that this process has in memory."""
    return int(Path("/proc/self/statm").read_text("ascii").split()[1]) * os.sysconf("SC_PAGE_SIZE")


async def test_clients_that_read_nothing_hold_little_of_a_long_message_and_others_get_it_whole() -> None:
    feed = Feed()
    async with serve(feed, Address("127.0.0.1", 0), "test", limits=LIMITS) as address:
        before = memory()
        with ExitStack() as stalled:
            for _ in range(STALLED):
                client = stalled.enter_context(socket.create_connection(("127.0.0.1", address.port)))
                client.sendall(_HANDSHAKE % base64.b64encode(os.urandom(16)))
            async with asyncio.timeout(60):
                await feed.all_begun.wait()
            url = f"ws://127.0.0.1:{address.port}/"
            async with connect(url, max_size=None, compression=None) as reader:
                assert await reader.recv() == LONG
            assert memory() - before < 60_000_000  # the messages have 180 MB
