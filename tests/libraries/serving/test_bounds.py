"""The limit of connections holds for each protocol, event loop and kind of client, also while a burst arrives."""

import asyncio
import os
import socket
import ssl
import time
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager, contextmanager
from pathlib import Path
from typing import Any

import pytest

from otel_zernel.testing import make_context, until
from otel_zernel.types import Address
from otel_zernel_libraries.serving.http2 import Http2Limits, Http2Server, ServerParts
from otel_zernel_libraries.serving.http2.wire import PREFACE, settings
from otel_zernel_libraries.serving.limits import ServerLimits
from otel_zernel_libraries.serving.requests.room import Room
from otel_zernel_libraries.serving.serving import listen, serve
from tests.exporters.otlp.certificates import Authority
from tests.libraries.serving.clients import GET, app
from tests.libraries.serving.conftest import ON_BOTH_LOOPS

pytestmark = ON_BOTH_LOOPS

LIMIT = 4
BURSTS, CLIENTS = 4, 40
CLOSING = 4
"""Files of connections that were aborted, and that the event loop closes in its next steps."""
Tls = Callable[[], ssl.SSLContext] | None


@asynccontextmanager
async def http1(tls: Tls, answer: Any = app) -> AsyncIterator[Address]:
    limits = ServerLimits(connections=LIMIT)
    async with serve(answer, Address("127.0.0.1", 0), "a::b", tls=tls, limits=limits) as address:
        yield address


def http2_server(tls: Tls, connections: int = LIMIT) -> Http2Server:
    room, limits = Room(1 << 20, time.monotonic), Http2Limits(connections=connections)
    parts = ServerParts(lambda _: None, room, limits, time.monotonic)  # type: ignore[arg-type,return-value]  # no calls
    return Http2Server(parts, make_context().logger, tls)


@asynccontextmanager
async def http2(tls: Tls) -> AsyncIterator[Address]:
    listener = listen(Address("127.0.0.1", 0), "a::b")
    async with http2_server(tls).serving([listener]):
        yield Address(*listener.getsockname()[:2])


SERVERS = {"http1": http1, "http2": http2}
FIRST_BYTES = {"http1": GET, "http2": PREFACE + settings({})}


@pytest.fixture(params=["plain", "tls"])
def tls(request: pytest.FixtureRequest, tmp_path: Path) -> Tls:
    if request.param == "plain":
        return None
    files = Authority(tmp_path).issue("localhost")
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(files.cert_file, files.key_file)
    return lambda: context


class Burst:
    """Clients that connect at once, before the event loop accepts one, and keep their sockets."""

    def __init__(self) -> None:
        self.clients: list[socket.socket] = []

    def connect(self, address: Address, first: bytes = b"", clients: int = CLIENTS) -> None:
        for _ in range(clients):
            client = socket.create_connection((address.host, address.port))
            client.setblocking(False)
            if first:
                client.send(first)
            self.clients.append(client)

    @property
    def open(self) -> int:
        """The clients whose connection the server has not closed."""
        return sum(not _is_closed(client) for client in self.clients)


def _is_closed(client: socket.socket) -> bool:
    try:
        while data := client.recv(1 << 16):
            del data
    except BlockingIOError:
        return False
    except ConnectionError:
        pass
    return True


@contextmanager
def bursts() -> Iterator[Burst]:
    burst = Burst()
    try:
        yield burst
    finally:
        for client in burst.clients:
            client.close()


def _files() -> int:
    with os.scandir("/proc/self/fd") as found:
        return sum(1 for _ in found)


@asynccontextmanager
async def most_files(burst: Burst) -> AsyncIterator[Callable[[], int]]:
    """The most files that the server had in a step of the event loop."""
    before, most = _files(), 0

    async def watch() -> None:
        nonlocal most
        while True:
            most = max(most, _files() - before - len(burst.clients))
            await asyncio.sleep(0)

    watching = asyncio.create_task(watch())
    try:
        yield lambda: most
    finally:
        watching.cancel()


@pytest.mark.parametrize("protocol", SERVERS)
async def test_bursts_of_clients_that_say_nothing_take_no_more_files_than_the_limit(protocol: str, tls: Tls) -> None:
    """With TLS, they never shake hands."""

    with bursts() as burst:
        async with SERVERS[protocol](tls) as address, most_files(burst) as most:
            for _ in range(BURSTS):
                burst.connect(address)
                await until(lambda: burst.open <= LIMIT)
            assert burst.open == LIMIT
            assert most() <= LIMIT + CLOSING


@pytest.mark.parametrize("steps", range(8))
async def test_a_client_that_loses_its_place_while_its_connection_opens_leaves_none_behind(steps: int) -> None:
    """The next client comes some steps of the event loop later."""

    listener = listen(Address("127.0.0.1", 0), "a::b")
    address, server = Address(*listener.getsockname()[:2]), http2_server(None, connections=1)
    with bursts() as burst:
        async with server.serving([listener]):
            for _ in range(50):
                burst.connect(address, clients=1)
                for _ in range(steps):
                    await asyncio.sleep(0)
            await until(lambda: burst.open == 1)
            await until(lambda: len(server.connections) == 1)
            burst.connect(address, clients=1)
            await until(lambda: _is_closed(burst.clients[-2]))
        assert not server.connections


def client_tls(tls: Tls, protocol: str) -> ssl.SSLContext | None:
    """The settings of a client that shakes hands, if the server has TLS."""
    if tls is None:
        return None
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
    context.set_alpn_protocols(["h2" if protocol == "http2" else "http/1.1"])
    return context


@pytest.mark.parametrize("protocol", SERVERS)
async def test_a_burst_takes_the_places_of_idle_connections_and_no_more(protocol: str, tls: Tls) -> None:
    """The connections that have no request are closed, the longest idle one first."""

    own = client_tls(tls, protocol)
    with bursts() as burst:
        async with SERVERS[protocol](tls) as address:
            idle = [await asyncio.open_connection(address.host, address.port, ssl=own) for _ in range(LIMIT)]
            for reader, writer in idle:
                writer.write(FIRST_BYTES[protocol])
                assert await reader.read(1)
            async with most_files(burst) as most:
                burst.connect(address)
                await until(lambda: burst.open <= LIMIT)
                for reader, _ in idle:
                    await reader.read()
                assert burst.open == LIMIT
                assert most() <= CLOSING
            for _, writer in idle:
                writer.close()


async def test_a_burst_to_a_busy_server_takes_no_more_files_than_twice_the_limit(tls: Tls) -> None:
    """Without TLS, as many clients again hear 503."""

    release, running = asyncio.Event(), 0

    async def busy(scope: Any, receive: Any, send: Any) -> None:
        nonlocal running
        running += 1
        await release.wait()
        await app(scope, receive, send)

    with bursts() as burst:
        async with http1(tls, busy) as address:
            working = [
                await asyncio.open_connection(address.host, address.port, ssl=client_tls(tls, "http1"))
                for _ in range(LIMIT)
            ]
            for _, writer in working:
                writer.write(GET)
            await until(lambda: running == LIMIT)
            async with most_files(burst) as most:
                for _ in range(BURSTS):
                    burst.connect(address)
                    await until(lambda: burst.open == 0)
                assert most() <= LIMIT + CLOSING
            release.set()
            for reader, writer in working:
                assert (await reader.readline()).startswith(b"HTTP/1.1 200")
                writer.close()
