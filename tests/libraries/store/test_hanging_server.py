"""A server that stops answering: a cancelled write ends, and the batch is stored later."""

import asyncio
import contextlib
from collections.abc import AsyncIterator

import pytest

from otel_zernel.batch import Batch
from otel_zernel.errors import Retryable
from otel_zernel_libraries.store.config import WritableStoreConfig
from otel_zernel_libraries.store.writer import StoreWriter
from tests.libraries.store.given import (
    DAY_NS,
    NOW_NS,
    config,
    gauges,
    points_in,
    postgres_config,
    reader,
    writing,
)
from tests.postgres import PASSWORD, PostgresServer


class Proxy:
    """Forwards connections to a server. After `hang`, it forwards nothing and closes nothing."""

    def __init__(self, port: int) -> None:
        self._target = port
        self._open = asyncio.Event()
        self._open.set()
        self._tasks: set[asyncio.Task[None]] = set()
        self.port = 0

    async def __aenter__(self) -> "Proxy":
        self._server = await asyncio.start_server(self._accept, "127.0.0.1", 0)
        self.port = self._server.sockets[0].getsockname()[1]
        return self

    async def __aexit__(self, *error: object) -> None:
        self._server.close()
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    def hang(self) -> None:
        self._open.clear()

    def go_on(self) -> None:
        self._open.set()

    async def _accept(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        there_reader, there_writer = await asyncio.open_connection("127.0.0.1", self._target)
        for source, sink in ((reader, there_writer), (there_reader, writer)):
            task = asyncio.create_task(self._forward(source, sink))
            self._tasks.add(task)

    async def _forward(self, source: asyncio.StreamReader, sink: asyncio.StreamWriter) -> None:
        try:
            while data := await source.read(1 << 12):
                await self._open.wait()
                sink.write(data)
                await sink.drain()
        except ConnectionError:
            pass
        finally:
            sink.close()


@pytest.fixture
async def proxy(postgres: PostgresServer) -> AsyncIterator[Proxy]:
    async with Proxy(postgres.port) as proxy:
        yield proxy


def behind(
    proxy: Proxy, postgres: PostgresServer, connect_timeout: str
) -> tuple[WritableStoreConfig, WritableStoreConfig]:
    """One store, reached directly and through the proxy."""
    direct = postgres_config(postgres)
    postgres.sql(f"CREATE SCHEMA {direct.schema_name} AUTHORIZATION tester")
    url = f"postgresql://tester@127.0.0.1:{proxy.port}/postgres"
    return direct, config(url=url, password=PASSWORD, schema_name=direct.schema_name, connect_timeout=connect_timeout)


async def insist(store: StoreWriter, batch: Batch) -> None:
    """Writes a batch. A busy machine may need several connections of 300 ms."""
    while True:
        with contextlib.suppress(Retryable):
            await store.write(batch, 0)
            return


async def test_a_cancelled_write_to_a_server_that_hangs_ends_and_is_repeated(
    postgres: PostgresServer, proxy: Proxy
) -> None:
    direct, settings = behind(proxy, postgres, "300ms")
    async with writing(settings) as store:
        await insist(store, gauges(50, times=5))
        for delay in (0.0, 0.002, 0.01):
            task = asyncio.create_task(store.write(gauges(50, times=50, first=5), 0))
            await asyncio.sleep(delay)
            proxy.hang()
            await asyncio.sleep(0.05)
            task.cancel()
            await asyncio.gather(task, return_exceptions=True)  # the test's own limit ends it if this hangs
            with pytest.raises((Retryable, TimeoutError)):
                await asyncio.wait_for(store.write(gauges(50, times=5), 0), 0.5)
            proxy.go_on()
        await insist(store, gauges(50, times=50, first=5))
    assert await points_in(direct) == 50 * 55


async def test_a_cancelled_removal_from_a_server_that_hangs_ends(postgres: PostgresServer, proxy: Proxy) -> None:
    _, settings = behind(proxy, postgres, "60s")
    async with writing(settings, retention_ns=DAY_NS) as store:
        for delay in (0.0, 0.002, 0.01, 0.03):
            await store.maintain(NOW_NS)
            removing = asyncio.create_task(store.maintain(NOW_NS))
            await asyncio.sleep(delay)
            proxy.hang()
            await asyncio.sleep(0.05)
            removing.cancel()
            await asyncio.gather(removing, return_exceptions=True)  # the test's own limit ends it if this hangs
            proxy.go_on()


async def test_a_cancelled_query_to_a_server_that_hangs_gives_its_connection_back(proxy: Proxy) -> None:
    url = f"postgresql://tester@127.0.0.1:{proxy.port}/postgres"
    settings = config(url=url, password=PASSWORD, connect_timeout="300ms", pool_size=1)
    reading = reader(settings)
    assert await reading.fetch("SELECT 1") == [(1,)]
    proxy.hang()
    query = asyncio.create_task(reading.fetch("SELECT 2"))
    await asyncio.sleep(0)  # begins
    query.cancel()
    await asyncio.gather(query, return_exceptions=True)  # the test's own limit ends it if this hangs
    with pytest.raises(Retryable):  # a new connection is tried: the place in the pool is free
        await reading.fetch("SELECT 3")
    proxy.go_on()
    while True:
        with contextlib.suppress(Retryable):
            assert await reading.fetch("SELECT 4") == [(4,)]
            break
    await reading.close()
