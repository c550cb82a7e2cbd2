"""A thousand readers at once: each gets each message, the next ones are refused, and memory stays bounded."""

import asyncio
from collections.abc import Iterator

import psutil
import pytest

from otel_zernel.testing import until
from otel_zernel.types import Address
from tests.exporters.websocket.feeds import feeding, memory
from tests.libraries.serving.frames import handshake
from tests.open_files import open_files

READERS, SURPLUS, AT_ONCE = 1000, 20, 50
MOST_MEMORY = 150 << 20
"""Bytes for both ends of all connections, which are in this process."""
Reader = tuple[asyncio.StreamReader, asyncio.StreamWriter]


@pytest.fixture(autouse=True)
def enough_files() -> Iterator[None]:
    """The server accepts a quarter of the process's open files."""
    with open_files(6 * READERS):
        yield


async def opened(address: Address) -> tuple[bytes, Reader]:
    """The status line, and the connection after its head."""
    reader, writer = await asyncio.open_connection(address.host, address.port)
    writer.write(handshake())
    head = await reader.readuntil(b"\r\n\r\n")
    return head.partition(b"\r\n")[0], (reader, writer)


async def text_of(reader: Reader) -> bytes:
    """The next message."""
    opcode, size = await reader[0].readexactly(2)
    assert opcode == 0x81
    if size == 126:
        size = int.from_bytes(await reader[0].readexactly(2))
    return await reader[0].readexactly(size)


async def many(address: Address, count: int) -> list[tuple[bytes, Reader]]:
    found: list[tuple[bytes, Reader]] = []
    while len(found) < count:
        found += await asyncio.gather(*(opened(address) for _ in range(min(AT_ONCE, count - len(found)))))
    return found


async def test_a_thousand_readers_get_each_message_and_the_next_ones_are_refused() -> None:
    before = psutil.Process().memory_info().rss
    async with feeding(max_clients=READERS, push_interval="1h") as exporter:
        await exporter.export(memory(5))
        found = await many(exporter.address, READERS)
        assert {status for status, _ in found} == {b"HTTP/1.1 101 Switching Protocols"}
        readers = [reader for _, reader in found]
        firsts = {await text_of(reader) for reader in readers}
        assert all(b'"current_bytes":5' in text for text in firsts)
        surplus = await many(exporter.address, SURPLUS)
        assert {status.split()[1] for status, _ in surplus} == {b"503"}
        for amount in (6, 7, 8):
            await exporter.export(memory(amount))
            await exporter.readers.push()
            texts = {await text_of(reader) for reader in readers}
            assert len(texts) == 1
            assert b'"current_bytes":%d' % amount in texts.pop()
        assert psutil.Process().memory_info().rss - before < MOST_MEMORY
        for _, writer in readers[: READERS // 2]:
            writer.transport.abort()
        await until(lambda: len(exporter.readers) == READERS - READERS // 2)
        status, late = (await many(exporter.address, 1))[0]
        assert status.split()[1] == b"101"
        assert b'"current_bytes":8' in await text_of(late)
        for _, writer in (*readers[READERS // 2 :], *(one for _, one in surplus), late):
            writer.transport.abort()
