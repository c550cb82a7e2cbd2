"""gRPC servers that refuse every connection by GOAWAY cost little CPU and memory."""

import asyncio
import resource
import struct
import sys
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager, suppress

import pytest

from otel_zernel.errors import Retryable
from otel_zernel_exporters.otlp import OtlpGrpcExporter
from tests.exporters.otlp.exporting import exporter_of
from tests.exporters.otlp.peers import GrpcSink, metrics_batch, serve_raw

PREFACE = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"
SETTINGS, GOAWAY, HEADERS = 4, 7, 1


def frame(kind: int, payload: bytes = b"") -> bytes:
    """An HTTP/2 frame of the connection (RFC 9113, 4.1)."""
    return len(payload).to_bytes(3, "big") + bytes((kind, 0)) + bytes(4) + payload


def goaway(last_stream: int = 0, code: int = 0) -> bytes:
    return frame(GOAWAY, struct.pack(">II", last_stream, code))


# Each is the moment of GOAWAY (bytes to read first, or the first HEADERS), the last accepted stream, and whether the
# server then closes the connection.
AT_ONCE, AFTER_PREFACE, AFTER_SETTINGS, AFTER_HEADERS = 0, len(PREFACE), len(PREFACE) + 9, -1
VARIANTS = {
    "at once, no stream, open": (AT_ONCE, 0, False),
    "at once, no stream, closed": (AT_ONCE, 0, True),
    "after the preface, no stream, open": (AFTER_PREFACE, 0, False),
    "after the settings, every stream, open": (AFTER_SETTINGS, 2**31 - 1, False),
    "after the settings, stream 1, closed": (AFTER_SETTINGS, 1, True),
    "after the request, no stream, closed": (AFTER_HEADERS, 0, True),
    "for ever": (AT_ONCE, 0, False),
}
SILENT = "after the settings, every stream, open"
"""The server may still answer the requests that it accepted: they may last until their deadline."""


@asynccontextmanager
async def refusing(variant: str) -> AsyncIterator[tuple[int, list[int]]]:
    """Serves one variant; yields the port, and a list with an entry for each connection."""
    moment, last_stream, closes = VARIANTS[variant]
    connections: list[int] = []

    async def refuse(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        connections.append(1)
        writer.write(frame(SETTINGS))
        if moment == AFTER_HEADERS:
            await reader.readexactly(len(PREFACE))
            while (await next_frame(reader)) != HEADERS:
                pass
        else:
            await reader.readexactly(moment)
        writer.write(goaway(last_stream))
        await writer.drain()
        while variant == "for ever":
            writer.write(frame(SETTINGS) + goaway(last_stream))
            await writer.drain()
            await asyncio.sleep(0.001)
        while not closes and await reader.read(1 << 16):
            pass

    async with serve_raw(refuse) as port:
        yield port, connections


async def next_frame(reader: asyncio.StreamReader) -> int:
    """Reads a frame; returns its type."""
    header = await reader.readexactly(9)
    await reader.readexactly(int.from_bytes(header[:3], "big"))
    return header[3]


ATTEMPTS = 3


async def main(*endpoints: str) -> None:
    """An exporter for each endpoint, in a process of its own: prints the growth of its memory in KiB, and the status of
    all requests."""
    for endpoint in endpoints:
        address, deadline = endpoint.split("#")
        async with exporter_of("grpc", address, timeout=deadline) as exporter:
            statuses = {await status(exporter)}
            before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
            for _ in range(ATTEMPTS):
                statuses |= set(await asyncio.gather(*(status(exporter) for _ in range(3))))
            grown = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before
        sys.stdout.write(f"{grown} {' '.join(statuses)}\n")


async def status(exporter: OtlpGrpcExporter) -> str:
    """The status of a request, which is to be sent again."""
    try:
        await exporter.export(metrics_batch(1000))
    except Retryable as error:
        return next(name for name in ("UNAVAILABLE", "DEADLINE_EXCEEDED") if name in str(error))
    raise AssertionError("the server accepted nothing")


@pytest.mark.parametrize("most", [1000, pytest.param(60, marks=pytest.mark.soak)])
async def test_a_server_that_refuses_every_connection_costs_little_and_loses_nothing(most: int) -> None:
    """gRPC's own retries would go on until the deadline: 2,500 connections and 400 MB of memory a second."""
    async with AsyncExitStack() as servers:
        served = {variant: await servers.enter_async_context(refusing(variant)) for variant in VARIANTS}
        endpoints = (
            f"http://127.0.0.1:{port}#{'0.2s' if variant == SILENT else '20s'}" for variant, (port, _) in served.items()
        )
        child = await asyncio.create_subprocess_exec(
            *(sys.executable, "-m", __name__, *endpoints), stdout=asyncio.subprocess.PIPE
        )
        printed = (await asyncio.wait_for(child.communicate(), 100))[0].decode()
    for (variant, (_, connections)), line in zip(served.items(), printed.splitlines(), strict=True):
        memory, *statuses = line.split()
        assert statuses == ["UNAVAILABLE"] or variant == SILENT, variant
        assert int(memory) < 100_000, variant  # KiB
        # Seven on a quiet machine. On a busy one, gRPC may open some before it passes on the refusal.
        assert len(connections) < most, variant


async def test_an_exporter_leaves_a_connection_on_which_the_server_accepts_nothing_more() -> None:
    """GOAWAY while the channel connects: gRPC then regards the connection as usable, for ever."""
    sink, connected = GrpcSink(), 0

    async def relay(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        nonlocal connected
        connected += 1
        if connected == 1:
            writer.write(frame(SETTINGS) + goaway(1))
            await reader.read(-1)
        else:
            await pass_on(reader, writer, sink_port)

    async with (
        sink.serve() as sink_port,
        serve_raw(relay) as port,
        exporter_of("grpc", f"http://127.0.0.1:{port}") as exporter,
    ):
        for _ in range(10):
            try:
                await exporter.export(metrics_batch())
                break
            except Retryable:
                await asyncio.sleep(0.01)
    assert sink.requests == [metrics_batch().bytes_of("metrics")]


async def pass_on(reader: asyncio.StreamReader, writer: asyncio.StreamWriter, port: int) -> None:
    """Connects a connection with another server."""
    there_reader, there_writer = await asyncio.open_connection("localhost", port)
    try:
        await asyncio.gather(copy(reader, there_writer), copy(there_reader, writer))
    finally:
        there_writer.close()
        with suppress(OSError):
            await there_writer.wait_closed()


async def copy(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    while data := await reader.read(1 << 16):
        writer.write(data)


if __name__ == "__main__":
    asyncio.run(main(*sys.argv[1:]))
