"""A server with a small application, and clients that send raw bytes."""

import asyncio
import contextlib
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

from otel_zernel.types import Address
from otel_zernel_libraries.serving.limits import ServerLimits
from otel_zernel_libraries.serving.serving import serve

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
async def served(application: Any = app, **limits: Any) -> AsyncIterator[Address]:
    """A server on a free port of localhost, with limits other than the defaults."""
    async with serve(application, Address("localhost", 0), "a::b", limits=ServerLimits(**limits)) as address:
        yield address


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
