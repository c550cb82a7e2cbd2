"""Odd OTLP/HTTP backends: each acknowledges some requests, and misbehaves in one way."""

import asyncio
import gzip
import ssl
import struct
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field

from opentelemetry.proto.collector.metrics.v1.metrics_service_pb2 import (
    ExportMetricsPartialSuccess,
    ExportMetricsServiceResponse,
)
from opentelemetry.proto.metrics.v1.metrics_pb2 import MetricsData

from tests.exporters.otlp.peers import serve_raw
from tests.otlp import metrics_in

PROTO = b"content-type: application/x-protobuf\r\n"
OK = b"HTTP/1.1 200 OK\r\n" + PROTO + b"content-length: 0\r\n\r\n"
MIB = 1 << 20


@dataclass
class Tally:
    """What a backend saw."""

    requests: int = 0
    received: int = 0
    """Points in whole requests. Repetitions count again."""
    acknowledged: set[str] = field(default_factory=set)
    """The points that it acknowledged, by `hw.id`. Each row of the test has its own."""


Writer = asyncio.StreamWriter
AnswerHttp = Callable[[Writer, int], Awaitable[bool]]
"""Answers the request with this number (from 1). Returns whether it acknowledged the request."""


def status(code: int, *headers: str, body: bytes = b"") -> bytes:
    lines = [f"HTTP/1.1 {code} Odd", *headers, f"content-length: {len(body)}", "", ""]
    return "\r\n".join(lines).encode() + body


def always(answer: bytes, *, acknowledges: bool = False) -> AnswerHttp:
    """The same answer to every request."""

    async def send(writer: Writer, _: int) -> bool:
        writer.write(answer)
        await writer.drain()
        return acknowledges

    return send


def at_first(times: int, answer: bytes) -> AnswerHttp:
    """This answer to the first requests, success from then on."""

    async def send(writer: Writer, number: int) -> bool:
        writer.write(answer if number <= times else OK)
        await writer.drain()
        return number > times

    return send


def every_other(misbehave: Callable[[Writer], Awaitable[None]]) -> AnswerHttp:
    """Misbehaves for each request with an odd number, and then closes the connection."""

    async def send(writer: Writer, number: int) -> bool:
        if number % 2:
            await misbehave(writer)
            raise ConnectionResetError
        writer.write(OK)
        await writer.drain()
        return True

    return send


async def reset(writer: Writer) -> None:
    """Ends the connection by RST."""
    linger = struct.pack("ii", 1, 0)
    writer.get_extra_info("socket").setsockopt(1, 13, linger)  # SOL_SOCKET, SO_LINGER
    writer.transport.abort()


async def half(writer: Writer) -> None:
    writer.write(b"HTTP/1.1 200 OK\r\ncontent-length: 100\r\n\r\nhalf")
    await writer.drain()


async def half_a_head(writer: Writer) -> None:
    writer.write(b"HTTP/1.1 200 O")
    await writer.drain()


async def garbage(writer: Writer) -> None:
    writer.write(b"\x00\xff" * 50_000)
    await writer.drain()


async def endless_head(writer: Writer) -> None:
    writer.write(b"HTTP/1.1 200 OK\r\n")
    for number in range(100_000):
        writer.write(f"x-{number}: {'y' * 100}\r\n".encode())
        await writer.drain()


async def silence(writer: Writer) -> None:
    await asyncio.sleep(60)


async def slow(writer: Writer, _: int) -> bool:
    await asyncio.sleep(0.05)
    writer.write(OK)
    await writer.drain()
    return True


def huge(code: int) -> AnswerHttp:
    """A body of 100 MB."""

    async def send(writer: Writer, _: int) -> bool:
        writer.write(f"HTTP/1.1 {code} Odd\r\n".encode() + PROTO + f"content-length: {100 * MIB}\r\n\r\n".encode())
        acknowledged = code < 300
        try:
            for _ in range(100):
                writer.write(bytes(MIB))
                await writer.drain()
        except ConnectionError:  # the exporter has read enough
            writer.transport.abort()
        return acknowledged

    return send


REJECTING = ExportMetricsServiceResponse(
    partial_success=ExportMetricsPartialSuccess(rejected_data_points=1, error_message="one is too old")
).SerializeToString()

HTTP: dict[str, AnswerHttp] = {
    "good": always(OK, acknowledges=True),
    "slow": slow,
    "429_without_retry_after": at_first(3, status(429)),
    "503_with_retry_after": at_first(3, status(503, "retry-after: 0")),
    "503_with_a_mad_retry_after": at_first(1, status(503, "retry-after: Mon, 01 Jan 2024 00:00:00 +99999999999999")),
    "503_for_ever": always(status(503)),
    "500": always(status(500, body=b"internal")),
    "400_nested": always(status(400, "content-type: application/json", body=b"[" * 60_000)),
    "302": always(status(302, "location: http://[")),
    "304": always(status(304)),
    "resets": every_other(reset),
    "half_answers": every_other(half),
    "half_heads": every_other(half_a_head),
    "endless_heads": every_other(endless_head),
    "silence": every_other(silence),
    "garbage": every_other(garbage),
    "huge_success": huge(200),
    "huge_failure": huge(500),
    "undecodable": always(b"HTTP/1.1 200 OK\r\n" + PROTO + b"content-length: 2\r\n\r\n\xff\xff", acknowledges=True),
    "partial": always(
        b"HTTP/1.1 200 OK\r\n" + PROTO + f"content-length: {len(REJECTING)}\r\n\r\n".encode() + REJECTING,
        acknowledges=True,
    ),
    "cookies": always(status(200, *(f"set-cookie: c{n}=1" for n in range(50))), acknowledges=True),
}
"""Backends over HTTP."""


def points_in(body: bytes) -> list[str]:
    """The `hw.id` of each point in a request."""
    metrics = MetricsData.FromString(gzip.decompress(body) if body[:2] == b"\x1f\x8b" else body)
    return [
        attribute.value.string_value
        for metric in metrics_in(metrics)
        for point in metric.gauge.data_points
        for attribute in point.attributes
        if attribute.key == "hw.id"
    ]


@asynccontextmanager
async def serve_http(answer: AnswerHttp, tally: Tally, tls: ssl.SSLContext | None = None) -> AsyncIterator[int]:
    """Serves one backend on localhost; yields the port."""

    async def serve(reader: asyncio.StreamReader, writer: Writer) -> None:
        while head := await reader.readuntil(b"\r\n\r\n"):
            fields = dict(line.lower().split(b": ", 1) for line in head.split(b"\r\n")[1:-2])
            points = points_in(await reader.readexactly(int(fields[b"content-length"])))
            tally.requests += 1
            tally.received += len(points)
            if await answer(writer, tally.requests):
                tally.acknowledged.update(points)

    async with serve_raw(serve, tls) as port:
        yield port
