"""Long WebSocket messages: readers get them whole, and clients that read nothing hold one fragment each."""

import asyncio
import base64
import os
import socket
from contextlib import ExitStack
from pathlib import Path
from typing import Any

from websockets.asyncio.client import connect

from otel_zernel.types import Address
from otel_zernel_libraries.serving.limits import ServerLimits
from otel_zernel_libraries.serving.serving import serve

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
