"""Servers that send anything: the receiver counts it, stays small, and reads the next good feed."""

import asyncio
import base64
import contextlib
import hashlib
import random
import re

import psutil
import pytest

from otel_zernel.testing import until
from tests.receivers.zernel.feeds import WHOLE, ForeignFeed, receiving, serving

SEED = 5
GUID = b"258EAFA5-E914-47DA-95CA-C5AB0DC85B11"
"""Of RFC 6455."""


def accepted(request: bytes) -> bytes:
    """The answer of a server that speaks WebSocket."""
    match = re.search(rb"sec-websocket-key: *(\S+)", request, re.IGNORECASE)
    key = base64.b64encode(hashlib.sha1((match.group(1) if match else b"") + GUID).digest())  # RFC 6455
    return (
        b"HTTP/1.1 101 Switching Protocols\r\nupgrade: websocket\r\nconnection: Upgrade\r\nsec-websocket-accept: "
        + (key + b"\r\n\r\n")
    )


def frames(chance: random.Random) -> bytes:
    """Frames whose opcodes, lengths and contents are by chance. Many are valid."""
    parts = []
    for _ in range(chance.randrange(1, 8)):
        payload = chance.choice((b'{"cuda_latency_p50_us":', b"{}", b"[" * 50, chance.randbytes(chance.randrange(120))))
        first = chance.choice((0x81, 0x82, 0x01, 0x80, 0x88, 0x89, 0x8A, chance.randrange(256)))
        length = len(payload) if chance.random() < 0.8 else chance.randrange(256)
        parts.append(bytes([first, length]) + payload)
    return b"".join(parts)


@pytest.mark.parametrize("speaks", [True, False], ids=["after a handshake", "in place of one"])
async def test_any_bytes_end_no_receiver_and_the_next_good_feed_is_read(speaks: bool, unused_tcp_port: int) -> None:
    chance, connections = random.Random(SEED), 0

    async def talk(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        nonlocal connections
        connections += 1
        with contextlib.suppress(OSError, asyncio.IncompleteReadError):
            request = await reader.readuntil(b"\r\n\r\n")
            writer.write(accepted(request) + frames(chance) if speaks else chance.randbytes(chance.randrange(400)))
            await writer.drain()
        writer.close()

    url = f"ws://127.0.0.1:{unused_tcp_port}"
    async with receiving(url, max_interval="10ms") as (received, context):
        server = await asyncio.start_server(talk, "127.0.0.1", unused_tcp_port)
        async with server:
            await until(lambda: connections > 10)
            before = psutil.Process().memory_info().rss
            await until(lambda: connections > 100)
            assert psutil.Process().memory_info().rss - before < 32 << 20
        seen = len(received.batches)
        async with serving(ForeignFeed(WHOLE), unused_tcp_port):
            await until(lambda: len(received.batches) > seen)
            await until(lambda: not context.health.sentences(0))
