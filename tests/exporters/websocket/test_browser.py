"""A web page of this machine reads the feed in Chromium, and one of another origin cannot."""

import asyncio
import contextlib
from pathlib import Path

import pytest

from tests.commands.why.chromium import browsing, require_chromium
from tests.exporters.websocket.feeds import feeding, memory

READ = """new Promise((done) => {
  const feed = new WebSocket("ws://%s/");
  feed.onmessage = (event) => done(JSON.parse(event.data).gpu_utilization[0].current_bytes);
  feed.onerror = () => done("refused");
})"""


@pytest.mark.parametrize(("allowed", "expected"), [("http://localhost:*", 5), ("https://dashboard.example", "refused")])
async def test_a_page_reads_the_feed_if_its_origin_is_allowed(allowed: str, expected: object, tmp_path: Path) -> None:
    require_chromium()
    page = b"<!doctype html><title>page</title>"
    head = b"HTTP/1.1 200 OK\r\ncontent-type: text/html\r\nconnection: close\r\ncontent-length: %d\r\n\r\n" % len(page)

    writers: list[asyncio.StreamWriter] = []

    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writers.append(writer)
        with contextlib.suppress(asyncio.IncompleteReadError, ConnectionError):  # a browser also connects in advance
            await reader.readuntil(b"\r\n\r\n")
            writer.write(head + page)
            await writer.drain()
        writer.close()

    def read(port: int, address: str) -> object:
        with browsing(tmp_path) as tab:
            tab.open(f"http://localhost:{port}/", 800, 600, "light")
            return tab.evaluate(READ % address)

    server = await asyncio.start_server(answer, "127.0.0.1", 0)
    async with server, feeding(allowed_origins=[allowed]) as exporter:
        await exporter.export(memory(5))
        port = server.sockets[0].getsockname()[1]
        assert await asyncio.to_thread(read, port, str(exporter.address)) == expected
        for writer in writers:
            writer.close()
            with contextlib.suppress(ConnectionError):
                await writer.wait_closed()
