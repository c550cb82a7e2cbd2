"""Hostile clients get the right answers, crash nothing, fill no memory, and keep no honest sender from being served."""

import asyncio
import gzip
import sys
import time
import zlib
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import grpc
import httpx
import psutil
import pytest
import zstandard

from otel_zernel.batch import Batch
from otel_zernel.testing import until
from otel_zernel_libraries.serving.http2.wire import (
    CONTINUATION,
    DATA,
    GOAWAY,
    HEADERS,
    LEAST_FRAME,
    PING,
    PREFACE,
    PRIORITY,
    RST_STREAM,
    SETTINGS,
    UINT32,
    ErrorCode,
    encode_headers,
    frame,
    message_of,
    settings,
    window_update,
)
from tests.collectors import collector
from tests.exporters.otlp.peers import GrpcSink
from tests.receivers.otlp.http2.raw import REQUEST_HEADERS, opening, request
from tests.receivers.otlp.serving import call, gauge

REQUEST = gauge(10).SerializeToString()
PROTO = {"content-type": "application/x-protobuf"}


@dataclass
class Gateway:
    """A running collector."""

    grpc: int
    http: int
    process: psutil.Process
    sink: GrpcSink
    before: float = 0.0
    """Resident memory before the abuse, in MB."""
    took: list[float] = field(default_factory=list)
    """Durations of the honest sender's requests, in s."""

    def rss(self) -> float:
        """Resident memory in MB."""
        return float(self.process.memory_info().rss / 1e6)

    @property
    def arrived(self) -> int:
        """Points in the sink."""
        return sum(Batch.from_bytes(metrics=request).point_count for request in self.sink.requests)

    @asynccontextmanager
    async def honest_sender(self) -> AsyncIterator[None]:
        """Meanwhile a sender sends over both protocols, and all of its requests are accepted."""
        self.before, self.took = self.rss(), []
        sending = asyncio.create_task(self._send_honestly())
        try:
            yield
            await until(lambda: len(self.took) >= 20 or sending.done(), within=30)
        finally:
            sending.cancel()
            await asyncio.gather(sending, return_exceptions=True)
        if not sending.cancelled() and (error := sending.exception()):
            raise error
        slowest = sorted(self.took)[int(len(self.took) * 0.99)] * 1e3
        memory = f"{self.before:.0f} -> {self.rss():.0f} MB"
        sys.stdout.write(f"\nhonest requests: {len(self.took)}, p99 {slowest:.0f} ms; memory {memory}\n")

    async def _send_honestly(self) -> None:
        async with (
            grpc.aio.insecure_channel(f"127.0.0.1:{self.grpc}") as channel,
            httpx.AsyncClient(base_url=f"http://127.0.0.1:{self.http}") as client,
        ):
            while True:
                start = time.monotonic()
                await call(channel)(REQUEST, timeout=60)
                middle = time.monotonic()
                (await client.post("/v1/metrics", content=REQUEST, headers=PROTO, timeout=60)).raise_for_status()
                self.took += [middle - start, time.monotonic() - middle]
                await asyncio.sleep(0.01)

    async def still_serves(self) -> None:
        """A new sender is served."""
        async with grpc.aio.insecure_channel(f"127.0.0.1:{self.grpc}") as channel:
            await call(channel)(REQUEST, timeout=60)
        assert self.process.is_running()
        assert self.process.status() != psutil.STATUS_ZOMBIE


@asynccontextmanager
async def gateway(folder: Path, port: Callable[[], int], **receiver: Any) -> AsyncIterator[Gateway]:
    """A collector that forwards to a sink. Its log is in the folder."""
    sink, ports = GrpcSink(), (port(), port())
    async with sink.serve() as sink_port:
        protocols = {
            "grpc": {"endpoint": f"127.0.0.1:{ports[0]}"},
            "http": {"endpoint": f"127.0.0.1:{ports[1]}"},
        }
        settings = {
            "receivers": {"otlp": {"protocols": protocols, **receiver}},
            "exporters": {"otlp_grpc": {"endpoint": f"http://localhost:{sink_port}", "compression": "none"}},
            "service": {
                "pipelines": {"metrics": {"receivers": ["otlp"], "exporters": ["otlp_grpc"]}},
            },
        }
        async with collector(folder, settings, *ports) as running:
            serving = Gateway(*ports, running.process, sink)
            await serving.still_serves()
            yield serving
            assert running.process.poll() is None, running.log


MEMORY = 200
"""MB by which the collector may grow. It holds at most 64 MiB of requests here."""
SENDERS = 1000
HEAD = b"POST /v1/metrics HTTP/1.1\r\nhost: x\r\ncontent-type: application/x-protobuf\r\n"
BOMB = 10 << 30
"""Bytes after decompression."""


@pytest.fixture
async def target(tmp_path: Path, unused_tcp_port_factory: Callable[[], int]) -> AsyncIterator[Gateway]:
    async with gateway(tmp_path, unused_tcp_port_factory, max_in_flight_mib=64) as running:
        yield running
        assert running.rss() - running.before < MEMORY


async def opened(port: int) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
    return await asyncio.open_connection("127.0.0.1", port)


def close(writers: list[asyncio.StreamWriter]) -> None:
    for writer in writers:
        writer.transport.abort()


async def test_a_thousand_concurrent_senders_are_all_served(target: Gateway) -> None:
    target.before = target.rss()
    head = HEAD + f"content-length: {len(REQUEST)}\r\n\r\n".encode()
    over_http, over_grpc = head + REQUEST, PREFACE + settings({}) + request(1, REQUEST)
    together = asyncio.Barrier(SENDERS)

    async def send(index: int) -> bytes:
        reader, writer = await opened(target.http if index % 2 else target.grpc)
        await together.wait()
        writer.write(over_http if index % 2 else over_grpc)
        answer = b""
        async with asyncio.timeout(60):
            while b"HTTP/1.1 200" not in answer and b"grpc-status\x010" not in answer:
                received = await reader.read(65536)
                assert received, answer
                answer += received
        writer.transport.abort()
        return answer

    await asyncio.gather(*(send(index) for index in range(SENDERS)))
    await until(lambda: target.arrived >= 10 * (SENDERS + 1), within=30)
    assert target.arrived == 10 * (SENDERS + 1)


STALLED: dict[str, tuple[str, bytes]] = {
    "half a request line": ("http", b"POST /v1/me"),
    "half of the headers": ("http", b"POST /v1/metrics HTTP/1.1\r\nhost: x\r\nx-a: "),
    "half a body": (
        "http",
        HEAD + b"content-length: 20000000\r\n\r\n" + bytes(150_000),
    ),
    "nothing": ("grpc", b""),
    "half a preface": ("grpc", PREFACE[:10]),
    "headers without an end": ("grpc", PREFACE + settings({}) + frame(HEADERS, 0, 1, encode_headers(REQUEST_HEADERS))),
    "half a message": (
        "grpc",
        PREFACE + settings({}) + opening(1) + frame(DATA, 0, 1, message_of(bytes(4_000_000))[:150_000]),
    ),
}


async def test_senders_that_stall_anywhere_keep_out_nobody(target: Gateway) -> None:
    writers: list[asyncio.StreamWriter] = []
    async with target.honest_sender():
        for index in range(SENDERS):
            protocol, data = list(STALLED.values())[index % len(STALLED)]
            _, writer = await opened(getattr(target, protocol))
            writer.write(data)
            writers.append(writer)
        sent = len(target.took)
        await until(lambda: len(target.took) > sent + 60, within=60)
    close(writers)


async def test_senders_that_never_read_are_disconnected(target: Gateway) -> None:
    http = b"GET / HTTP/1.1\r\nhost: x\r\n\r\n" * 1000
    pings = frame(PING, 0, 0, bytes(8)) * 1000
    floods = {target.http: (b"", http), target.grpc: (PREFACE + settings({}), pings)}
    async with target.honest_sender():
        await asyncio.gather(*(_flood_without_reading(port, *floods[port]) for port in floods for _ in range(20)))


async def _flood_without_reading(port: int, start: bytes, data: bytes) -> None:
    _, writer = await opened(port)  # the reader stops at its limit of 64 KiB
    writer.write(start)
    with suppress(ConnectionError, TimeoutError):
        async with asyncio.timeout(20):
            for _ in range(2000):
                writer.write(data)
                await writer.drain()
    writer.transport.abort()


def block(size: int) -> bytes:
    """Zeros as deflate, between flushes, so that repetitions of it are deflate too."""
    stream = zlib.compressobj(9, wbits=-15)
    return stream.compress(bytes(size)) + stream.flush(zlib.Z_FULL_FLUSH)


def bomb(encoding: str) -> bytes:
    """10 GiB of zeros."""
    size = 1 << 24
    if encoding == "zstd":
        return zstandard.ZstdCompressor(level=3).compress(bytes(size)) * (BOMB // size)
    if encoding == "gzip":
        return gzip.compress(bytes(size)) * (BOMB // size)
    adler = (BOMB % 65521) << 16 | 1
    return b"\x78\x9c" + block(size) * (BOMB // size) + b"\x03\x00" + adler.to_bytes(4)


FILES = 200
"""That a collector may open."""


async def test_bursts_on_all_ports_leave_files_and_a_place_for_a_probe(
    tmp_path: Path, unused_tcp_port_factory: Callable[[], int]
) -> None:
    """Each port takes a quarter of the files at most, and there are six ports."""
    ports = [unused_tcp_port_factory() for _ in range(6)]
    protocols = zip(("grpc", "http"), ports, strict=False)
    pages = {f"prometheus/{port}": {"endpoint": f"127.0.0.1:{port}"} for port in ports[2:]}
    health = unused_tcp_port_factory()
    config = {
        "receivers": {"otlp": {"protocols": {name: {"endpoint": f"127.0.0.1:{port}"} for name, port in protocols}}},
        "exporters": pages,
        "extensions": {"health_check": {"endpoint": f"127.0.0.1:{health}"}},
        "service": {"extensions": ["health_check"], "pipelines": {"m": {"receivers": ["otlp"], "exporters": [*pages]}}},
    }
    wrapper = ("sh", "-c", f'ulimit -n {FILES}; exec "$@"', "sh")
    most = 0
    async with collector(tmp_path, config, *ports, health, wrapper=wrapper) as running:
        before = running.process.num_fds()
        writers = []
        try:
            for port in ports * 2:
                writers += [(await opened(port))[1] for _ in range(60)]
                async with httpx.AsyncClient() as client:
                    assert (await client.get(f"http://127.0.0.1:{health}/", timeout=60)).status_code == 200
                most = max(most, running.process.num_fds() - before)
            await until(lambda: running.process.num_fds() - before > FILES * 0.5)
            most = max(most, running.process.num_fds() - before)
        finally:
            close(writers)
    assert most <= FILES * 0.8 + 8, "8 connections are about to close"
    assert "Too many open files" not in running.log


@pytest.mark.parametrize("encoding", ["gzip", "zlib", "deflate", "zstd"])
async def test_a_bomb_of_10_gb_is_too_large(target: Gateway, encoding: str) -> None:
    body = bomb(encoding)[: 19 << 20]
    headers = {**PROTO, "content-encoding": encoding}
    async with target.honest_sender(), httpx.AsyncClient(base_url=f"http://127.0.0.1:{target.http}") as client:
        posts = (client.post("/v1/metrics", content=body, headers=headers, timeout=60) for _ in range(3))
        answers = await asyncio.gather(*posts)
    assert [answer.status_code for answer in answers] == [413] * 3


async def test_a_bomb_in_any_encoding_over_grpc_is_too_large(target: Gateway) -> None:
    async with target.honest_sender():
        for encoding in ("gzip", "deflate", "zstd"):
            answer = await _answer_to_bomb(target, encoding)
            assert b"grpc-status\x018" in answer, encoding  # RESOURCE_EXHAUSTED


async def _answer_to_bomb(target: Gateway, encoding: str) -> bytes:
    body = bomb(encoding)[:4_000_000]
    reader, writer = await opened(target.grpc)
    headers = opening(1, [*REQUEST_HEADERS, ("grpc-encoding", encoding)])
    data = b"\x01" + len(body).to_bytes(4) + body
    pieces = [data[start : start + LEAST_FRAME] for start in range(0, len(data), LEAST_FRAME)]
    frames = b"".join(frame(DATA, 0, 1, piece) for piece in pieces) + frame(DATA, 1, 1)
    writer.write(PREFACE + settings({}) + headers + frames)
    answer = b""
    async with asyncio.timeout(60):
        while b"grpc-status" not in answer:
            answer += await reader.read(65536)
    writer.transport.abort()
    return answer


def rapid_resets() -> Iterator[bytes]:
    for stream in range(1, 400_000, 2):
        yield opening(stream) + frame(RST_STREAM, 0, stream, UINT32.pack(8))


def repeated(data: bytes) -> Iterator[bytes]:
    while True:
        yield data


CALM = ErrorCode.ENHANCE_YOUR_CALM
FLOODS: dict[str, Callable[[], Iterator[bytes]]] = {
    "pings": lambda: repeated(frame(PING, 0, 0, bytes(8))),
    "answers to pings": lambda: repeated(frame(PING, 1, 0, bytes(8))),
    "settings": lambda: repeated(settings({4: 65535})),
    "rapid resets": rapid_resets,
    "priorities": lambda: repeated(frame(PRIORITY, 0, 1, bytes(5))),
    "window updates": lambda: repeated(window_update(0, 1)),
    "unknown frames": lambda: repeated(frame(0xEE, 0, 0, bytes(10))),
    "empty data": lambda: iter([opening(1), *([frame(DATA, 0, 1)] * 100_000)]),
    "continuation": lambda: iter([frame(HEADERS, 0, 1, b""), *([frame(CONTINUATION, 0, 1, b"")] * 100_000)]),
    "large continuation": lambda: iter(
        [frame(HEADERS, 0, 1, b""), *([frame(CONTINUATION, 0, 1, bytes(16000))] * 10_000)]
    ),
}


async def test_a_flood_of_frames_of_any_kind_ends_the_connection(target: Gateway) -> None:
    async with target.honest_sender():
        for name, frames in FLOODS.items():
            codes = await asyncio.gather(*(_flood(target, frames()) for _ in range(5)))
            assert set(codes) <= {CALM, None}, name  # None: the reset of the connection overtook its last frame
    await target.still_serves()


async def _flood(target: Gateway, frames: Iterator[bytes]) -> int | None:
    """Sends frames until the server ends the connection. Returns the code of its GOAWAY, if that arrived."""
    reader, writer = await opened(target.grpc)
    reading = asyncio.create_task(_last_code(reader))
    writer.write(PREFACE + settings({}))
    async with asyncio.timeout(60):
        with suppress(ConnectionError):
            while not reading.done():
                writer.write(b"".join(next(frames, b"") for _ in range(100)))
                await writer.drain()
                await asyncio.sleep(0)
        code = await reading
    writer.transport.abort()
    return code


async def _last_code(reader: asyncio.StreamReader) -> int | None:
    with suppress(ConnectionError, asyncio.IncompleteReadError):
        while True:
            head = await reader.readexactly(9)
            payload = await reader.readexactly(int.from_bytes(head[:3]))
            if head[3] == GOAWAY:
                return int.from_bytes(payload[4:8])
            assert head[3] in (SETTINGS, PING, RST_STREAM, HEADERS, 8)
    return None


async def test_requests_over_the_limits_get_their_codes_under_load(target: Gateway) -> None:
    large = gauge(30_000).SerializeToString()
    async with target.honest_sender(), grpc.aio.insecure_channel(f"127.0.0.1:{target.grpc}") as channel:

        async def code(body: bytes) -> Any:
            try:
                await call(channel)(body, timeout=30)
            except grpc.aio.AioRpcError as error:
                return error.code()
            return grpc.StatusCode.OK

        codes = await asyncio.gather(*(code(large if index % 2 else b"\xff") for index in range(100)))
    assert set(codes) == {grpc.StatusCode.RESOURCE_EXHAUSTED, grpc.StatusCode.INTERNAL}
