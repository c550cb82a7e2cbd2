"""A server of WebSockets that echoes, and clients that send frames by hand."""

import asyncio
import base64
import contextlib
import os
import struct
from collections.abc import AsyncIterator
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from typing import Any

from websockets.asyncio.client import connect

from otel_zernel.types import Address
from tests.libraries.serving.clients import served

TEXT, BINARY, CONTINUATION, CLOSE, PING = 1, 2, 0, 8, 9


class Echo:
    """Answers each message with itself, `big` with 1 MiB. Serves plain HTTP with `http`. Counts its connections, and
    those to `/silent`, which it does not answer."""

    def __init__(self) -> None:
        self.open = self.silent = 0
        self.codes: list[int] = []

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        if scope["type"] == "http":
            await send({"type": "http.response.start", "status": 200, "headers": [(b"content-length", b"4")]})
            await send({"type": "http.response.body", "body": b"http"})
            return
        await receive()
        if scope["path"] == "/silent":
            self.silent += 1
            await asyncio.Event().wait()
        await send({"type": "websocket.accept"})
        self.open += 1
        try:
            await self.answer(receive, send)
        finally:
            self.open -= 1

    async def answer(self, receive: Any, send: Any) -> None:
        while (message := await receive())["type"] == "websocket.receive":
            text = "x" * (1 << 20) if message.get("text") == "big" else message.get("text")
            with contextlib.suppress(OSError):
                await send({"type": "websocket.send", "text": text, "bytes": message.get("bytes")})
        self.codes.append(message["code"])


def echoing(echo: Echo, **limits: Any) -> AbstractAsyncContextManager[Address]:
    """A server whose clients may send messages of 64 KiB."""
    return served(echo, **{"message_size": 1 << 16, **limits})


def connected(address: Address, path: str = "/", **options: Any) -> connect:
    return connect(f"ws://{address}{path}", **options)


@asynccontextmanager
async def raw(address: Address, path: str = "/") -> AsyncIterator[tuple[asyncio.StreamReader, asyncio.StreamWriter]]:
    """A connection after the handshake, for frames by hand."""
    reader, writer = await asyncio.open_connection(address.host, address.port)
    try:
        writer.write(handshake(path))
        if path != "/silent":
            assert b" 101 " in await reader.readuntil(b"\r\n\r\n")
        yield reader, writer
    finally:
        writer.transport.abort()


def handshake(path: str = "/", *headers: bytes) -> bytes:
    key = b"sec-websocket-key: " + base64.b64encode(os.urandom(16))
    fixed = [b"host: a", b"connection: Upgrade", b"upgrade: websocket", b"sec-websocket-version: 13", key]
    return b"\r\n".join([b"GET %s HTTP/1.1" % path.encode(), *fixed, *headers, b"", b""])


def frame(opcode: int, payload: bytes = b"", *, end: bool = True, length: int | None = None) -> bytes:
    """A frame of a client, masked with zeros. `length` is what its head claims."""
    size = len(payload) if length is None else length
    if size < 126:
        claimed = bytes([0x80 | size])
    elif size <= 0xFFFF:
        claimed = b"\xfe" + struct.pack("!H", size)
    else:
        claimed = b"\xff" + struct.pack("!Q", size)
    return bytes([(0x80 if end else 0) | opcode]) + claimed + b"\0\0\0\0" + payload


async def close_code(reader: asyncio.StreamReader) -> int | None:
    """The code with which the server closes; None if it closes without a frame."""
    with contextlib.suppress(asyncio.IncompleteReadError, ConnectionError):
        while True:
            opcode, size = await reader.readexactly(2)
            if size == 126:
                (size,) = struct.unpack("!H", await reader.readexactly(2))
            payload = await reader.readexactly(size)
            if opcode & 15 == CLOSE:
                return int.from_bytes(payload[:2])
    return None
