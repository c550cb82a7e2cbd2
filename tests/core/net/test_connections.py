"""A server survives every client: endless, slow, greedy, absent. Raw sockets against a real server, on both loops."""

import asyncio
import contextlib
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import psutil
import pytest

from otel_zernel.net.limits import ServerLimits
from otel_zernel.net.serving import serve
from otel_zernel.testing import until
from otel_zernel.types import Address
from tests.core.net.conftest import Run

GET = b"GET / HTTP/1.1\r\nhost: a\r\n\r\n"


async def app(scope: Any, receive: Any, send: Any) -> None:
    """Answers with the length of the body. `/early` answers before it reads, `/big` with 8 MiB."""
    length = 0
    if scope["path"] != "/early":
        while (message := await receive())["type"] == "http.request":
            length += len(message["body"])
            if not message["more_body"]:
                break
    body = b"x" * (8 << 20) if scope["path"] == "/big" else str(length).encode()
    headers = [(b"content-length", str(len(body)).encode())]
    await send({"type": "http.response.start", "status": 200, "headers": headers})
    for start in range(0, len(body), 1 << 18):
        more = start + (1 << 18) < len(body)
        await send({"type": "http.response.body", "body": body[start : start + (1 << 18)], "more_body": more})


@asynccontextmanager
async def client(address: Address) -> AsyncIterator[tuple[asyncio.StreamReader, asyncio.StreamWriter]]:
    reader, writer = await asyncio.open_connection(address.host, address.port)
    try:
        yield reader, writer
    finally:
        writer.close()
        with contextlib.suppress(OSError):
            await writer.wait_closed()


async def answer(reader: asyncio.StreamReader) -> bytes:
    """One answer of `app`: the status line and the body."""
    head = await reader.readuntil(b"\r\n\r\n")
    length = next(int(line[16:]) for line in head.split(b"\r\n") if line.startswith(b"content-length: "))
    return head.split(b"\r\n", 1)[0] + b" " + await reader.readexactly(length)


async def ask(address: Address, request: bytes = GET) -> bytes:
    """Everything that the server says on a new connection, until it closes. Errors of the client are ignored."""
    async with client(address) as (reader, writer):
        writer.write(request)
        heard = b""
        with contextlib.suppress(ConnectionError):
            while part := await reader.read(1 << 16):
                heard += part
        return heard


def test_a_request_with_a_body_is_answered_and_the_connection_is_kept(run: Run) -> None:
    async def test() -> None:
        async with serve(app, Address("localhost", 0), "a::b") as address, client(address) as (reader, writer):
            for _ in range(3):
                writer.write(b"POST / HTTP/1.1\r\ncontent-length: 200000\r\n\r\n" + b"x" * 200_000)
                assert await answer(reader) == b"HTTP/1.1 200 OK 200000"

    run(test())


def test_a_connection_has_one_request_if_keep_alive_is_off(run: Run) -> None:
    async def test() -> None:
        limits = ServerLimits(keep_alive=False)
        async with serve(app, Address("localhost", 0), "a::b", limits=limits) as address:
            answer = await ask(address, GET)
            assert b"\r\nconnection: close\r\n" in answer

    run(test())


@pytest.mark.parametrize(
    "request_",
    [
        b"GET /" + b"a" * 70_000 + b" HTTP/1.1\r\n\r\n",
        b"GET / HTTP/1.1\r\na: " + b"b" * 70_000 + b"\r\n\r\n",
        b"GET / HTTP/1.1\r\n" + b"a: b\r\n" * 20_000 + b"\r\n",
        b"\r\n" * 40_000,
    ],
    ids=["url", "header", "headers", "empty lines"],
)
def test_a_long_head_is_answered_with_431(run: Run, request_: bytes) -> None:
    async def test() -> None:
        async with serve(app, Address("localhost", 0), "a::b") as address:
            assert (await ask(address, request_)).startswith(b"HTTP/1.1 431 ")

    run(test())


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
def test_an_endless_head_costs_neither_memory_nor_time(run: Run, start: bytes) -> None:
    """Fault 3: 200 MB in one header made exports late by 20 s, and took 200 MB of memory."""
    part = b"a:b\r\n" * 13_000 if start.endswith(b"1.1\r\n") else b"a" * 65_000

    async def test() -> None:
        async with serve(app, Address("localhost", 0), "a::b") as address, client(address) as (_, writer):
            before = psutil.Process().memory_info().rss
            writer.write(start)
            sent = 0
            with contextlib.suppress(ConnectionError):
                while sent < 200_000_000 and not writer.transport.is_closing():
                    writer.write(part)
                    sent += len(part)
                    await writer.drain()
            assert sent < 50_000_000  # the buffers of the kernel, and the second in which input is discarded
            assert psutil.Process().memory_info().rss - before < 40_000_000

    run(test())


LIMITS = ServerLimits(head_time=0.3, body_time=0.3, idle_time=0.3, write_time=0.3, linger_time=0.2)


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
def test_a_slow_client_is_disconnected(run: Run, request_: bytes, expected: bytes) -> None:
    """Fault 7: a thousand slow connections stayed for ever."""

    async def test() -> None:
        async with serve(app, Address("localhost", 0), "a::b", limits=LIMITS) as address:
            heard = await ask(address, request_)
            assert heard.split(b"\r\n")[0] == expected

    run(test())


def test_a_client_that_never_reads_is_disconnected(run: Run) -> None:
    ended = asyncio.Event()

    async def watched(scope: Any, receive: Any, send: Any) -> None:
        await app(scope, receive, send)
        ended.set()

    async def test() -> None:
        async with (
            serve(watched, Address("localhost", 0), "a::b", limits=LIMITS) as address,
            client(address) as (_, writer),
        ):
            writer.transport.pause_reading()  # type: ignore[attr-defined]  # every socket transport has it
            writer.write(GET.replace(b"/", b"/big", 1))
            await ended.wait()

    run(test())


def test_drops_of_a_body_longer_than_body_time_are_not_accepted(run: Run) -> None:
    async def test() -> None:
        async with (
            serve(app, Address("localhost", 0), "a::b", limits=LIMITS) as address,
            client(address) as (_, writer),
        ):
            writer.write(b"POST / HTTP/1.1\r\ncontent-length: 1000000\r\n\r\n")
            with contextlib.suppress(ConnectionError):
                while not writer.transport.is_closing():
                    writer.write(b"x")
                    await writer.drain()
                    await asyncio.sleep(0.02)

    run(test())


def test_an_early_answer_reaches_a_client_that_sends_its_whole_request_first(run: Run) -> None:
    async def test() -> None:
        async with serve(app, Address("localhost", 0), "a::b") as address, client(address) as (reader, writer):
            writer.write(b"POST /early HTTP/1.1\r\ncontent-length: 4000000\r\n\r\n" + b"x" * 4_000_000)
            await until(lambda: writer.transport.get_write_buffer_size() == 0)
            assert await answer(reader) == b"HTTP/1.1 200 OK 0"

    run(test())


def test_the_longest_idle_connection_gives_its_place_to_a_new_one(run: Run) -> None:
    async def test() -> None:
        limits = ServerLimits(connections=3)
        async with (
            serve(app, Address("localhost", 0), "a::b", limits=limits) as address,
            client(address) as first,
            client(address) as second,
            client(address) as third,
        ):
            for reader, writer in (first, second, third):
                writer.write(GET)
                await answer(reader)
            second[1].write(GET)
            await answer(second[0])
            async with client(address) as fourth:
                fourth[1].write(GET)
                assert (await answer(fourth[0])).startswith(b"HTTP/1.1 200")
                assert await first[0].read() == b""
                for reader, writer in (second, third):
                    writer.write(GET)
                    assert (await answer(reader)).startswith(b"HTTP/1.1 200")

    run(test())


def test_a_thousand_slow_connections_leave_a_place_for_a_probe(run: Run) -> None:
    async def test() -> None:
        async with (
            serve(app, Address("localhost", 0), "a::b", limits=ServerLimits(connections=50)) as address,
            contextlib.AsyncExitStack() as slow,
        ):
            for _ in range(300):
                _, writer = await slow.enter_async_context(client(address))
                writer.write(b"GET / HT")
            async with client(address) as (reader, writer):
                writer.write(GET)
                assert (await answer(reader)).startswith(b"HTTP/1.1 200")

    run(test())


def test_a_new_connection_gets_503_if_all_others_are_busy(run: Run) -> None:
    async def test() -> None:
        release, running = asyncio.Event(), asyncio.Event()

        async def busy(scope: Any, receive: Any, send: Any) -> None:
            running.set()
            await release.wait()
            await app(scope, receive, send)

        async with (
            serve(busy, Address("localhost", 0), "a::b", limits=ServerLimits(connections=1)) as address,
            client(address) as (reader, writer),
        ):
            writer.write(GET)
            await running.wait()
            heard = await ask(address)
            assert heard.startswith(b"HTTP/1.1 503")
            assert b"retry-after: 1\r\n" in heard
            release.set()
            assert (await answer(reader)).startswith(b"HTTP/1.1 200")

    run(test())


def test_a_client_that_leaves_with_pipelined_requests_unread_causes_no_traceback(run: Run) -> None:
    """Fault 25. `run` checks the log."""

    async def test() -> None:
        async with serve(app, Address("localhost", 0), "a::b") as address:
            for _ in range(20):
                async with client(address) as (_, writer):
                    writer.write(GET.replace(b"/", b"/big", 1) * 10)
                    await writer.drain()
                    await asyncio.sleep(0.01)
                    writer.transport.abort()
            assert (await ask(address, GET.replace(b"\r\n\r\n", b"\r\nconnection: close\r\n\r\n"))).endswith(b"0")

    run(test())


def test_pipelined_requests_are_answered_in_order_and_bounded(run: Run) -> None:
    async def test() -> None:
        async with serve(app, Address("localhost", 0), "a::b", limits=ServerLimits(pipelined=5)) as address:
            async with client(address) as (reader, writer):
                bodies = [b"x" * count for count in range(5)]
                writer.write(b"".join(b"POST / HTTP/1.1\r\ncontent-length: %d\r\n\r\n%s" % (len(b), b) for b in bodies))
                assert [(await answer(reader))[-1:] for _ in bodies] == [b"0", b"1", b"2", b"3", b"4"]
            assert await ask(address, GET * 1000) == b""

    run(test())


@pytest.mark.parametrize(
    "garbage",
    [b"\x16\x03\x01\x02\x00\x01\x00", b"GET /\xff HTTP/1.1\r\n\r\n", b"\x00" * 100],
    ids=["tls", "url", "zeros"],
)
def test_garbage_is_answered_with_400(run: Run, garbage: bytes) -> None:
    async def test() -> None:
        async with serve(app, Address("localhost", 0), "a::b") as address:
            assert (await ask(address, garbage)).startswith(b"HTTP/1.1 400 ")

    run(test())


def test_an_upgrade_is_ignored(run: Run) -> None:
    async def test() -> None:
        upgrade = b"GET / HTTP/1.1\r\nconnection: upgrade\r\nupgrade: h2c\r\n\r\n"
        async with serve(app, Address("localhost", 0), "a::b") as address, client(address) as (reader, writer):
            writer.write(upgrade)
            assert (await answer(reader)).startswith(b"HTTP/1.1 200")

    run(test())


def test_the_end_of_a_server_ends_every_connection_and_request(run: Run) -> None:
    """Requests that do not finish within the grace period are cancelled, without a traceback."""

    async def never(scope: Any, receive: Any, send: Any) -> None:
        await asyncio.Event().wait()

    async def test() -> None:
        async with serve(never, Address("localhost", 0), "a::b") as address:
            reader, writer = await asyncio.open_connection(address.host, address.port)
            idle = await asyncio.open_connection(address.host, address.port)
            writer.write(GET)
            await asyncio.sleep(0.05)
        assert await reader.read() == b""
        assert await idle[0].read() == b""
        for each in (writer, idle[1]):
            each.close()
            await each.wait_closed()

    run(test())
