"""Foreign clients get the feed on every path, and a hostile or slow one costs little.

A web page of this machine reads the feed in Chromium, and one of another origin cannot.
"""

import asyncio
import contextlib
import json
import socket
from pathlib import Path
from typing import Any

import psutil
import pytest
import websockets

from otel_zernel.errors import CannotStart
from otel_zernel.testing import FakeClock, until
from otel_zernel_exporters.websocket import WebSocketExporter
from otel_zernel_exporters.websocket.readers import FeedReaders
from tests.commands.why.chromium import browsing, require_chromium
from tests.exporters.websocket.feeds import EMPTY, client_of, feeding, memory
from tests.libraries.serving.frames import handshake


async def message_of(client: Any) -> dict[str, Any]:
    loads: dict[str, Any] = json.loads(await client.recv())
    return loads


@pytest.mark.parametrize("path", ["/", "/ws", "/any/path?at=all"])
async def test_the_first_message_comes_at_once_on_every_path(path: str) -> None:
    async with feeding(push_interval="1h") as exporter:
        await exporter.export(memory(5))
        async with client_of(exporter, path) as client:
            message = await message_of(client)
    assert list(message) == list(EMPTY)
    assert message["gpu_utilization"] == [{"key": "7:0", "current_bytes": 5, "peak_bytes": 5}]


async def test_later_messages_have_what_has_changed() -> None:
    async with feeding() as exporter, client_of(exporter) as client:
        assert await message_of(client) == EMPTY
        await exporter.export(memory(6))
        while not (message := await message_of(client))["gpu_utilization"]:
            pass
        assert message["gpu_utilization"][0]["current_bytes"] == 6


async def test_all_readers_get_the_same_text() -> None:
    async with feeding(push_interval="1h") as exporter, contextlib.AsyncExitStack() as stack:
        await exporter.export(memory(5))
        clients = [await stack.enter_async_context(client_of(exporter)) for _ in range(5)]
        assert len({await client.recv() for client in clients}) == 1
        await exporter.export(memory(6))
        await exporter.readers.push()
        texts = {await client.recv() for client in clients}
        assert len(texts) == 1
        assert '"current_bytes":6' in str(texts.pop())


async def test_nothing_is_made_while_nobody_listens() -> None:
    made: list[str] = []

    async def render() -> str:
        made.append(f"{len(made)}")
        return made[-1]

    clock, left = FakeClock(), asyncio.Event()
    sent: list[str] = []

    async def receive() -> dict[str, str]:
        await left.wait()
        return {"type": "websocket.disconnect"}

    async def send(message: dict[str, str]) -> None:
        sent.append(message["text"])

    readers = FeedReaders(render, clock, 1.0, slow=lambda: None, skipped=lambda count: None)
    running = asyncio.create_task(readers.run())
    for _ in range(100):
        await asyncio.sleep(0)
    assert (made, clock.monotonic()) == ([], 0)
    serving = asyncio.create_task(readers.serve(receive, send))
    await until(lambda: len(sent) >= 3)
    left.set()
    await serving
    for _ in range(100):
        await asyncio.sleep(0)
    before = len(made)
    for _ in range(100):
        await asyncio.sleep(0)
    assert len(made) == before
    running.cancel()


async def test_a_reader_may_send_anything_small() -> None:
    async with feeding() as exporter, client_of(exporter) as client:
        await client.send("subscribe")
        await client.send(b"\0\xff")
        await client.recv()
        await client.recv()
        assert client.state is websockets.State.OPEN


async def test_a_long_message_ends_its_sender_alone() -> None:
    async with feeding() as exporter, client_of(exporter) as other, client_of(exporter) as client:
        with contextlib.suppress(websockets.ConnectionClosed):
            await client.send("x" * 100_000)
        with contextlib.suppress(websockets.ConnectionClosed):
            while True:
                await client.recv()
        assert client.close_code == 1009
        assert await other.recv()


async def test_a_web_page_of_another_site_is_refused() -> None:
    async with feeding() as exporter:
        for origin in ("https://evil.example", "http://localhost.evil.example", "null"):
            with pytest.raises(websockets.InvalidStatus) as refused:
                await client_of(exporter, origin=origin)
            assert refused.value.response.status_code == 403
            assert b"add the origin to allowed_origins" in refused.value.response.body
        for page in ("http://localhost:5173", "http://127.0.0.1:8080", "tauri://localhost", None):
            async with client_of(exporter, origin=page) as client:
                assert await client.recv()
    async with (
        feeding(allowed_origins=["https://*.example.com"]) as exporter,
        client_of(exporter, origin="https://a.example.com") as client,
    ):
        assert await client.recv()


async def test_clients_beyond_the_limit_are_refused_and_a_free_place_is_taken() -> None:
    async with feeding(max_clients=1) as exporter:
        async with client_of(exporter) as client:
            await client.recv()
            with pytest.raises(websockets.InvalidStatus) as refused:
                await client_of(exporter)
            assert refused.value.response.status_code == 503
            assert b"raise max_clients" in refused.value.response.body
        await until(lambda: not len(exporter.readers))
        async with client_of(exporter) as client:
            assert await client.recv()


async def test_clients_that_come_at_the_same_time_share_the_places() -> None:
    async with feeding(max_clients=3) as exporter:
        found = await asyncio.gather(*(client_of(exporter) for _ in range(20)), return_exceptions=True)
        admitted = [one for one in found if not isinstance(one, BaseException)]
        refused = [one for one in found if isinstance(one, websockets.InvalidStatus)]
        for client in admitted:
            assert await client.recv()
            await client.close()
    assert (len(admitted), len(refused)) == (3, 17)
    assert {one.response.status_code for one in refused} == {503}


async def test_a_request_by_http_gets_a_sentence() -> None:
    async with feeding() as exporter:
        reader, writer = await asyncio.open_connection(exporter.address.host, exporter.address.port)
        writer.write(b"GET / HTTP/1.1\r\nhost: a\r\nconnection: close\r\n\r\n")
        answer = await reader.read()
        writer.close()
    assert answer.startswith(b"HTTP/1.1 426 ")
    assert b"upgrade: websocket" in answer.lower()
    assert b"WebSocket clients" in answer


async def test_a_taken_port_is_named_and_nothing_stays_open() -> None:
    async with feeding() as exporter:
        with pytest.raises(CannotStart, match="exporters::websocket::endpoint: cannot listen on localhost:"):
            async with feeding(endpoint=f"localhost:{exporter.address.port}"):
                pass
    assert not [task for task in asyncio.all_tasks() if task.get_name().startswith("feed")]


async def test_a_slow_reader_skips_messages_delays_nobody_and_holds_little_memory() -> None:
    """Each message has 75 KB. A stalled reader gets a few, the others all."""
    async with feeding(push_interval="1h") as exporter, client_of(exporter) as good:
        for pid in range(1, 1025):
            await exporter.export(memory(1, pid=pid))
        stalled = [await _stalled(exporter) for _ in range(20)]
        await until(lambda: len(exporter.readers) == 21)
        await good.recv()
        before = psutil.Process().memory_info().rss
        for _ in range(200):
            await exporter.readers.push()
            await good.recv()
        grown = psutil.Process().memory_info().rss - before
        for one in stalled:
            one.close()
        await until(lambda: len(exporter.readers) == 1)
    assert grown < 50 << 20  # all messages of 20 readers would be 300 MB


async def _stalled(exporter: WebSocketExporter) -> socket.socket:
    """A client that reads nothing after the handshake."""
    client = socket.socket()
    client.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
    client.setblocking(False)
    loop = asyncio.get_running_loop()
    await loop.sock_connect(client, (exporter.address.host, exporter.address.port))
    await loop.sock_sendall(client, handshake())
    return client


async def test_a_reader_that_vanishes_leaves_its_place() -> None:
    async with feeding() as exporter:
        client = await client_of(exporter)
        await client.recv()
        client.transport.abort()
        await until(lambda: not len(exporter.readers))


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
