"""A client of HTTP/2 that sends any bytes, for the tests of the protocol and of its abuse."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from dataclasses import dataclass, field

import hpack

from otel_zernel.types import Address
from otel_zernel_libraries.serving.http2.wire import (
    DATA,
    END_HEADERS,
    END_STREAM,
    GOAWAY,
    HEADERS,
    PREFACE,
    RST_STREAM,
    encode_headers,
    frame,
    message_of,
    settings,
)
from otel_zernel_receivers.otlp import OtlpReceiver
from otel_zernel_receivers.otlp.grpc.server import SERVICES

EXPORT = f"/{SERVICES['metrics']}/Export"
REQUEST_HEADERS = [
    (":method", "POST"),
    (":scheme", "http"),
    (":path", EXPORT),
    (":authority", "localhost"),
    ("te", "trailers"),
    ("content-type", "application/grpc"),
]


def headers_for(path: str) -> list[tuple[str, str]]:
    """The headers of a request to this path."""
    return [(name, path if name == ":path" else value) for name, value in REQUEST_HEADERS]


@dataclass
class Frame:
    """One received frame."""

    kind: int
    flags: int
    stream: int
    payload: bytes


@dataclass
class RawClient:
    """One connection."""

    reader: asyncio.StreamReader
    writer: asyncio.StreamWriter
    decoder: hpack.Decoder = field(default_factory=hpack.Decoder)

    async def send(self, *frames: bytes) -> None:
        self.writer.write(b"".join(frames))
        await self.writer.drain()

    async def greet(self) -> None:
        """The preface and the settings."""
        await self.send(PREFACE, settings({}))

    async def receive(self) -> Frame:
        """The next frame. Raises `asyncio.IncompleteReadError` or `ConnectionError` at the end."""
        head = await self.reader.readexactly(9)
        payload = await self.reader.readexactly(int.from_bytes(head[:3]))
        return Frame(head[3], head[4], int.from_bytes(head[5:]), payload)

    async def until(self, kind: int) -> Frame:
        """The next frame of a kind."""
        while (received := await self.receive()).kind != kind:
            pass
        return received

    async def ended_with(self) -> int | None:
        """The error code of GOAWAY; None if the connection ended without one."""
        try:
            async with asyncio.timeout(60):
                goaway = await self.until(GOAWAY)
        except (asyncio.IncompleteReadError, ConnectionError):
            return None
        return int.from_bytes(goaway.payload[4:8])

    async def status(self, stream: int) -> int:
        """The grpc-status of a stream."""
        async with asyncio.timeout(60):
            while True:
                received = await self.receive()
                if received.kind == HEADERS:
                    headers = {bytes(name): value for name, value in self.decoder.decode(received.payload, raw=True)}
                    if received.stream == stream and received.flags & END_STREAM:
                        return int(headers[b"grpc-status"])
                assert (received.kind, received.stream) != (RST_STREAM, stream), "the stream was reset"


def request(stream: int, message: bytes, headers: list[tuple[str, str]] = REQUEST_HEADERS) -> bytes:
    """The frames of a unary call."""
    block = encode_headers(headers)
    return frame(HEADERS, END_HEADERS, stream, block) + frame(DATA, END_STREAM, stream, message_of(message))


def opening(stream: int, headers: list[tuple[str, str]] = REQUEST_HEADERS) -> bytes:
    """The headers of a call."""
    return frame(HEADERS, END_HEADERS, stream, encode_headers(headers))


def connected(receiver: OtlpReceiver, *, greet: bool = True) -> AbstractAsyncContextManager[RawClient]:
    """A connection to the gRPC port."""
    place = receiver.addresses["grpc"]
    assert isinstance(place, Address)
    return connected_to(place, greet=greet)


@asynccontextmanager
async def connected_to(place: Address, *, greet: bool = True) -> AsyncIterator[RawClient]:
    reader, writer = await asyncio.open_connection(place.host, place.port, limit=1 << 22)
    client = RawClient(reader, writer)
    try:
        if greet:
            await client.greet()
        yield client
    finally:
        writer.transport.abort()
