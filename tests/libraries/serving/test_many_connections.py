"""Many connections: the server keeps a place for a new client, and answers pipelined requests in order.

The room of requests: what has ended is free at once.
"""

import asyncio
import contextlib
import gc
import resource
import time
import weakref
from typing import Any

from otel_zernel.testing import until
from otel_zernel_libraries.serving.requests.failures import RequestFailure
from otel_zernel_libraries.serving.requests.room import Room
from tests.libraries.serving.clients import GET, answer, app, ask, client, served
from tests.libraries.serving.conftest import ON_BOTH_LOOPS

pytestmark = ON_BOTH_LOOPS


async def test_the_longest_idle_connection_gives_its_place_to_a_new_one() -> None:
    async with (
        served(connections=3) as address,
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


async def test_a_thousand_slow_connections_leave_a_place_for_a_probe() -> None:
    async with served(connections=50) as address, contextlib.AsyncExitStack() as slow:
        for _ in range(300):
            _, writer = await slow.enter_async_context(client(address))
            writer.write(b"GET / HT")
        async with client(address) as (reader, writer):
            writer.write(GET)
            assert (await answer(reader)).startswith(b"HTTP/1.1 200")


async def test_slow_connections_take_a_quarter_of_the_open_files_and_leave_a_place_for_a_probe() -> None:
    """Fault 7: at 1,024 open files, a thousand slow connections made the liveness probe fail."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (400, hard))
    try:
        async with served() as address, contextlib.AsyncExitStack() as slow:
            readers = []
            for _ in range(150):
                reader, writer = await slow.enter_async_context(client(address))
                writer.write(b"GET / HT")
                readers.append(reader)
            async with client(address) as (reader, writer):
                writer.write(GET)
                assert (await answer(reader)).startswith(b"HTTP/1.1 200")
            await until(lambda: sum(reader.at_eof() for reader in readers) >= 50)
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))


async def test_a_new_connection_gets_503_if_all_others_are_busy() -> None:
    release, running = asyncio.Event(), asyncio.Event()

    async def busy(scope: Any, receive: Any, send: Any) -> None:
        running.set()
        await release.wait()
        await app(scope, receive, send)

    async with served(busy, connections=1) as address, client(address) as (reader, writer):
        writer.write(GET)
        await running.wait()
        heard = await ask(address)
        assert heard.startswith(b"HTTP/1.1 503")
        assert b"retry-after: 1\r\n" in heard
        release.set()
        assert (await answer(reader)).startswith(b"HTTP/1.1 200")


async def test_a_client_that_leaves_with_pipelined_requests_unread_causes_no_traceback() -> None:
    """Fault 25. `quiet` checks the log."""

    async with served() as address:
        for _ in range(20):
            async with client(address) as (_, writer):
                writer.write(GET.replace(b"/", b"/big", 1) * 10)
                await writer.drain()
                await asyncio.sleep(0.01)
                writer.transport.abort()
        assert (await ask(address, GET.replace(b"\r\n\r\n", b"\r\nconnection: close\r\n\r\n"))).endswith(b"0")


async def test_pipelined_requests_are_answered_in_order_and_bounded() -> None:
    async with served(pipelined=5) as address:
        async with client(address) as (reader, writer):
            bodies = [b"x" * count for count in range(5)]
            writer.write(b"".join(b"POST / HTTP/1.1\r\ncontent-length: %d\r\n\r\n%s" % (len(b), b) for b in bodies))
            assert [(await answer(reader))[-1:] for _ in bodies] == [b"0", b"1", b"2", b"3", b"4"]
        assert await ask(address, GET * 1000) == b""


class Request:
    """A request that has room, and that the room may refuse."""

    def __init__(self, room: Room) -> None:
        self.hold = room.take(self.refuse)
        self.refusal: RequestFailure | None = None

    def refuse(self, failure: RequestFailure) -> None:
        self.refusal = failure


async def test_an_ended_request_leaves_no_cycle_for_the_garbage_collector() -> None:
    """Thousands of requests a second would make it run often, and each run delays those of the moment."""
    room = Room(1 << 20, time.monotonic)
    request = Request(room)
    request.hold.add(100)
    request.hold.give_back()
    seen = weakref.ref(request)
    gc.disable()
    try:
        del request
        assert seen() is None
    finally:
        gc.enable()
    assert room.used == 0


async def test_a_slow_request_is_refused_for_one_that_needs_its_room() -> None:
    now = [0.0]
    room = Room(100, lambda: now[0])
    slow, other = Request(room), Request(room)
    slow.hold.add(80)
    now[0] = 5.0
    other.hold.add(90)
    assert slow.refusal
    assert other.refusal is None
    assert room.used == 90
