"""A server survives every client: endless, slow, greedy, absent. Raw sockets against a real server, on both loops.

Requests whose end is ambiguous: no second request is taken from the body of the first.
"""

import asyncio
import contextlib
import re
from typing import Any

import psutil
import pytest

from otel_zernel.testing import until
from otel_zernel_libraries.serving.limits import ServerLimits
from tests.libraries.serving.clients import GET, answer, app, ask, client, served
from tests.libraries.serving.conftest import ON_BOTH_LOOPS

pytestmark = ON_BOTH_LOOPS

HEADERS = ServerLimits().headers


async def test_a_request_with_a_body_is_answered_and_the_connection_is_kept() -> None:
    async with served() as address, client(address) as (reader, writer):
        for _ in range(3):
            writer.write(b"POST / HTTP/1.1\r\ncontent-length: 200000\r\n\r\n" + b"x" * 200_000)
            assert await answer(reader) == b"HTTP/1.1 200 OK 200000"


async def test_a_connection_has_one_request_if_keep_alive_is_off() -> None:
    async with served(keep_alive=False) as address:
        answer = await ask(address, GET)
        assert b"\r\nconnection: close\r\n" in answer


@pytest.mark.parametrize(
    "request_",
    [
        b"GET /" + b"a" * 70_000 + b" HTTP/1.1\r\n\r\n",
        b"GET / HTTP/1.1\r\na: " + b"b" * 70_000 + b"\r\n\r\n",
        b"GET / HTTP/1.1\r\n" + b"a: b\r\n" * 20_000 + b"\r\n",
        b"GET / HTTP/1.1\r\n" + b"a: b\r\n" * (HEADERS + 1) + b"\r\n",
        b"\r\n" * 40_000,
    ],
    ids=["url", "header", "headers", "many short headers", "empty lines"],
)
async def test_a_long_head_is_answered_with_431(request_: bytes) -> None:
    async with served() as address:
        assert (await ask(address, request_)).startswith(b"HTTP/1.1 431 ")


async def test_a_head_with_as_many_headers_as_allowed_is_answered() -> None:
    async with served() as address:
        headers = b"host: a\r\nconnection: close\r\n" + b"a: b\r\n" * (HEADERS - 2)
        assert (await ask(address, b"GET / HTTP/1.1\r\n" + headers + b"\r\n")).startswith(b"HTTP/1.1 200 ")


@pytest.mark.parametrize(
    "start",
    [
        b"GET /",
        b"GET / HTTP/1.1\r\na: ",
        b"GET / HTTP/1.1\r\n",
        b"POST / HTTP/1.1\r\ntransfer-encoding: chunked\r\n\r\n0\r\na: ",
        b"POST / HTTP/1.1\r\ntransfer-encoding: chunked\r\n\r\n1;",
    ],
    ids=["url", "header", "headers", "trailer", "chunk extension"],
)
async def test_an_endless_head_costs_neither_memory_nor_time(start: bytes) -> None:
    """Fault 3: 200 MB in one header made exports late by 20 s, and took 200 MB of memory."""
    part = b"a:b\r\n" * 13_000 if start.endswith(b"1.1\r\n") else b"a" * 65_000

    async with served() as address, client(address) as (_, writer):
        before = psutil.Process().memory_info().rss
        writer.write(start)
        sent = 0
        with contextlib.suppress(ConnectionError):
            while sent < 200_000_000 and not writer.transport.is_closing():
                writer.write(part)
                sent += len(part)
                await writer.drain()
        assert sent < 200_000_000  # the buffers of the kernel, and the second in which input is discarded
        assert psutil.Process().memory_info().rss - before < 100_000_000


IMPATIENT = {"head_time": 0.3, "body_time": 0.3, "idle_time": 0.3, "write_time": 0.3, "linger_time": 0.2}


@pytest.mark.parametrize(
    ("request_", "expected"),
    [
        (b"", b""),
        (b"GET / HT", b"HTTP/1.1 408 Request Timeout"),
        (b"POST / HTTP/1.1\r\ncontent-length: 9\r\n\r\nabc", b""),
        (GET, b"HTTP/1.1 200 OK"),
    ],
    ids=["silent", "half a head", "half a body", "idle after an answer"],
)
async def test_a_slow_client_is_disconnected(request_: bytes, expected: bytes) -> None:
    """Fault 7: a thousand slow connections stayed for ever."""

    async with served(**IMPATIENT) as address:
        heard = await ask(address, request_)
        assert heard.split(b"\r\n")[0] == expected


async def test_a_client_that_never_reads_is_disconnected() -> None:
    ended = asyncio.Event()

    async def watched(scope: Any, receive: Any, send: Any) -> None:
        await app(scope, receive, send)
        ended.set()

    async with served(watched, **IMPATIENT) as address, client(address) as (_, writer):
        writer.transport.pause_reading()  # type: ignore[attr-defined]  # every socket transport has it
        writer.write(GET.replace(b"/", b"/big", 1))
        await ended.wait()


async def test_drops_of_a_body_longer_than_body_time_are_not_accepted() -> None:
    async with served(**IMPATIENT) as address, client(address) as (_, writer):
        writer.write(b"POST / HTTP/1.1\r\ncontent-length: 1000000\r\n\r\n")
        with contextlib.suppress(ConnectionError):
            while not writer.transport.is_closing():
                writer.write(b"x")
                await writer.drain()
                await asyncio.sleep(0.02)


async def test_an_early_answer_reaches_a_client_that_sends_its_whole_request_first() -> None:
    async with served() as address, client(address) as (reader, writer):
        writer.write(b"POST /early HTTP/1.1\r\ncontent-length: 4000000\r\n\r\n" + b"x" * 4_000_000)
        await until(lambda: writer.transport.get_write_buffer_size() == 0)
        assert await answer(reader) == b"HTTP/1.1 200 OK 0"


@pytest.mark.parametrize(
    "garbage",
    [b"\x16\x03\x01\x02\x00\x01\x00", b"GET /\xff HTTP/1.1\r\n\r\n", b"\x00" * 100],
    ids=["tls", "url", "zeros"],
)
async def test_garbage_is_answered_with_400(garbage: bytes) -> None:
    async with served() as address:
        assert (await ask(address, garbage)).startswith(b"HTTP/1.1 400 ")


async def test_an_upgrade_is_ignored() -> None:
    upgrade = b"GET / HTTP/1.1\r\nconnection: upgrade\r\nupgrade: h2c\r\n\r\n"
    async with served() as address, client(address) as (reader, writer):
        writer.write(upgrade)
        assert (await answer(reader)).startswith(b"HTTP/1.1 200")


async def test_the_end_of_a_server_ends_every_connection_and_request() -> None:
    """Requests that do not finish within the grace period are cancelled, without a traceback."""

    asked = asyncio.Event()

    async def never(scope: Any, receive: Any, send: Any) -> None:
        asked.set()
        await asyncio.Event().wait()

    async with served(never) as address:
        reader, writer = await asyncio.open_connection(address.host, address.port)
        idle = await asyncio.open_connection(address.host, address.port)
        writer.write(GET)
        await asked.wait()
    assert await reader.read() == b""
    assert await idle[0].read() == b""
    for each in (writer, idle[1]):
        each.close()
        await each.wait_closed()


POST = b"POST / HTTP/1.1\r\nhost: a\r\n"
HIDDEN = b"GET /hidden HTTP/1.1\r\nhost: a\r\nconnection: close\r\n\r\n"
CHUNKED = b"transfer-encoding: chunked\r\n\r\n"
AMBIGUOUS = {
    "a length and chunks": POST + b"content-length: 5\r\n" + CHUNKED + b"0\r\n\r\n",
    "two lengths": POST + b"content-length: 5\r\ncontent-length: 0\r\n\r\nhello",
    "the same length twice": POST + b"content-length: 5\r\ncontent-length: 5\r\n\r\nhello",
    "a list of lengths": POST + b"content-length: 5, 5\r\n\r\nhello",
    "a length with a sign": POST + b"content-length: +5\r\n\r\nhello",
    "a negative length": POST + b"content-length: -5\r\n\r\nhello",
    "a length beyond all numbers": POST + b"content-length: 99999999999999999999999\r\n\r\nhello",
    "an unknown encoding": POST + b"transfer-encoding: xchunked\r\n\r\n0\r\n\r\n",
    "chunks that are not the last encoding": POST + b"transfer-encoding: chunked, identity\r\n\r\n0\r\n\r\n",
    "a space before the colon": POST + b"transfer-encoding : chunked\r\n\r\n0\r\n\r\n",
    "a folded header": POST + b"transfer-encoding:\r\n chunked\r\n\r\n0\r\n\r\n",
    "line feeds alone": b"POST / HTTP/1.1\nhost: a\ncontent-length: 0\n\n",
    "a carriage return alone": b"POST / HTTP/1.1\r\nhost: a\rx: y\r\n\r\n",
    "a null character": b"GET / HTTP/1.1\r\nhost: a\r\nx: a\0b\r\n\r\n",
    "a chunk with a sign": POST + CHUNKED + b"+5\r\nhello\r\n0\r\n\r\n",
    "a chunk with a prefix": POST + CHUNKED + b"0x5\r\nhello\r\n0\r\n\r\n",
    "a chunk beyond all numbers": POST + CHUNKED + b"fffffffffffffffff\r\nhello\r\n0\r\n\r\n",
    "a chunk that ends with a line feed": POST + CHUNKED + b"5\nhello\n0\n\n",
    "a chunk with more data than it says": POST + CHUNKED + b"5\r\nhelloXX\r\n0\r\n\r\n",
    "a tunnel": b"CONNECT a:80 HTTP/1.1\r\nhost: a\r\n\r\n",
    "an old version with chunks": b"POST / HTTP/1.0\r\nhost: a\r\n" + CHUNKED + b"0\r\n\r\n",
}


@pytest.mark.parametrize("request_", AMBIGUOUS.values(), ids=AMBIGUOUS)
async def test_a_request_with_an_ambiguous_end_is_the_last_of_its_connection(request_: bytes) -> None:
    paths: list[str] = []

    async def listening(scope: Any, receive: Any, send: Any) -> None:
        paths.append(scope["path"])
        await app(scope, receive, send)

    async with served(listening) as address:
        heard = await ask(address, request_ + HIDDEN)
    assert "/hidden" not in paths
    assert len(re.findall(rb"^HTTP", heard, re.MULTILINE)) <= 1


async def test_a_request_behind_an_unambiguous_one_is_answered() -> None:
    async with served() as address:
        for first in (POST + b"content-length: 5\r\n\r\nhello", POST + CHUNKED + b"5\r\nhello\r\n0\r\n\r\n"):
            assert (await ask(address, first + HIDDEN)).count(b"HTTP/1.1 200 ") == 2
