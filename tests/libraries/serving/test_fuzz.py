"""Random requests, in random pieces, neither stop a server nor cause a traceback."""

import asyncio
import contextlib
import random

import pytest

from otel_zernel.testing import until
from otel_zernel.types import Address
from tests.libraries.serving.clients import GET, ask, served
from tests.libraries.serving.conftest import ON_BOTH_LOOPS
from tests.libraries.serving.frames import Echo, frame, handshake

pytestmark = ON_BOTH_LOOPS

_PIECES = [
    *(
        b"GET ",
        b"POST ",
        b"HEAD ",
        b"PRI * HTTP/2.0",
        b"CONNECT a:1 ",
        b"OPTIONS * ",
        b"/",
        b"/early",
        b"/big",
        b"/%ff",
    ),
    *(b"http://a/", b"?a=b", b" HTTP/1.1", b" HTTP/1.0", b" HTTP/9.9", b"\r\n", b"\r\n", b"\r\n\r\n", b"\n", b"\r"),
    *(b"host: a", b"content-length: 5", b"content-length: -1", b"content-length: 99999999999999999999"),
    *(b"transfer-encoding: chunked", b"transfer-encoding: gzip, chunked", b"connection: close", b"connection: upgrade"),
    *(b"upgrade: websocket", b"expect: 100-continue", b"5\r\nhello\r\n", b"0\r\n\r\n", b"fffffffff\r\n", b"5;x=y\r\n"),
    *(b" folded", b": ", b"\x00", b"\xff\xfe", b"a" * 70_000, b"hello", GET, GET * 20),
]


def _request(chance: random.Random) -> bytes:
    start = GET[: chance.randrange(len(GET))] if chance.random() < 0.3 else b""
    request = start + b"".join(chance.choices(_PIECES, k=chance.randrange(1, 12)))
    if chance.random() < 0.2:
        at = chance.randrange(len(request))
        request = request[:at] + bytes([chance.randrange(256)]) + request[at + 1 :]
    return request


async def _send(address: Address, request: bytes, chance: random.Random) -> None:
    reader, writer = await asyncio.open_connection(address.host, address.port)
    with contextlib.suppress(ConnectionError, TimeoutError, RuntimeError):  # uvloop's, if closed
        for piece in (request[: (cut := chance.randrange(len(request) + 1))], request[cut:]):
            writer.write(piece)
            await asyncio.wait_for(writer.drain(), 1)
            await asyncio.sleep(0)
        if chance.random() < 0.5:
            await asyncio.wait_for(reader.read(chance.choice([1, 1 << 16])), 0.05)
    writer.transport.abort() if chance.random() < 0.5 else writer.close()
    with contextlib.suppress(OSError):
        await writer.wait_closed()


_AT_ONCE = 50
"""Connections."""
_TIMES = {"head_time": 0.2, "body_time": 0.2, "idle_time": 0.2, "write_time": 0.2, "linger_time": 0.1}


async def _fuzz(requests: int, seed: int) -> None:
    chance = random.Random(seed)
    async with served(**_TIMES, connections=50) as address:
        for _ in range(0, requests, _AT_ONCE):
            await asyncio.gather(*(_send(address, _request(chance), chance) for _ in range(_AT_ONCE)))
        assert (await ask(address)).startswith(b"HTTP/1.1 200")


def _frames(chance: random.Random) -> bytes:
    """A handshake, mostly, and random frames."""
    start = _request(chance) if chance.random() < 0.05 else handshake(chance.choice(["/", "/silent"]))
    lengths = [0, 1, 5, 125, 126, 1000, 1 << 16, (1 << 16) + 1]
    frames = []
    for _ in range(chance.randrange(8)):
        payload = chance.choice([b"a", b"\xff", b"big", "€".encode()]) * chance.choice(lengths)
        claimed = len(payload) if chance.random() < 0.9 else chance.choice([*lengths, 1 << 62])
        opcode = chance.choice([0, 0, 1, 1, 2, 8, 9, 10, chance.randrange(16)])
        frames.append(frame(opcode, payload[: 1 << 17], end=chance.random() < 0.6, length=claimed))
    return start + b"".join(frames) + chance.randbytes(chance.randrange(20))


async def _send_frames(address: Address, sent: bytes, chance: random.Random) -> None:
    """The frames after the answer to the handshake. uvloop raises `RuntimeError` if the server has closed."""
    reader, writer = await asyncio.open_connection(address.host, address.port)
    head, end, frames = sent.partition(b"\r\n\r\n")
    with contextlib.suppress(ConnectionError, TimeoutError, RuntimeError):
        writer.write(head + end)
        await asyncio.wait_for(reader.read(1), 0.1)
        for piece in (frames[: (cut := chance.randrange(len(frames) + 1))], frames[cut:]):
            writer.write(piece)
            await asyncio.wait_for(writer.drain(), 1)
        await asyncio.wait_for(reader.read(chance.choice([1, 1 << 16])), 0.05)
    writer.transport.abort() if chance.random() < 0.5 else writer.close()
    with contextlib.suppress(OSError):
        await writer.wait_closed()


async def _fuzz_frames(connections: int, seed: int) -> None:
    chance, echo = random.Random(seed), Echo()
    limits = {**_TIMES, "message_size": 1 << 16, "ping_interval": 0.1, "ping_timeout": 0.1}
    async with served(echo, **limits, connections=50) as address:
        for _ in range(0, connections, _AT_ONCE):
            await asyncio.gather(*(_send_frames(address, _frames(chance), chance) for _ in range(_AT_ONCE)))
        await until(lambda: not echo.open)
        assert (await ask(address)).startswith(b"HTTP/1.1 200")


async def test_random_frames_leave_the_server_working() -> None:
    await _fuzz_frames(500, seed=1)


@pytest.mark.timeout(3600)
@pytest.mark.parametrize("requests", [1_000, pytest.param(100_000, marks=pytest.mark.soak)])
async def test_random_requests_leave_the_server_working(requests: int) -> None:
    await _fuzz(requests, seed=1)
