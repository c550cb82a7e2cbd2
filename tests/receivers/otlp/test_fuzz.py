"""Whatever bytes arrive: every request gets a documented answer, nothing is raised, and no room stays taken.

Each example of hypothesis is a seed for a hundred damaged requests, since most of its time would go into drawing bytes.
"""

import asyncio
import random
from collections.abc import Callable, Coroutine
from typing import Any, Final

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from otel_zernel.batch import SIGNALS
from otel_zernel.clock import SystemClock
from otel_zernel.otlp.json import to_json
from otel_zernel.testing import make_context, until
from otel_zernel_libraries.serving.http2 import Http2Limits, Method, ServerParts
from otel_zernel_libraries.serving.http2.server import Http2Connection
from otel_zernel_libraries.serving.http2.wire import (
    CONTINUATION,
    DATA,
    END_HEADERS,
    GOAWAY,
    HEADERS,
    PING,
    PREFACE,
    PRIORITY,
    RST_STREAM,
    frame,
    message_of,
    window_update,
)
from otel_zernel_libraries.serving.http2.wire import settings as settings_frame
from otel_zernel_libraries.serving.requests.failures import unserved
from otel_zernel_receivers.otlp.config import HttpConfig
from otel_zernel_receivers.otlp.grpc.server import ExportMethod
from otel_zernel_receivers.otlp.http.app import HttpApp
from otel_zernel_receivers.otlp.intake import OtlpIntake
from tests.receivers.otlp.http2.raw import opening, request
from tests.receivers.otlp.serving import COMPRESS, REQUESTS, Recording

REQUESTS_A_SEED: Final = 100
SHORT, LONG = 40, 5000
"""Examples: 4,000 requests of each kind in the suite, and 500,000 of each in `make soak`."""
SEEDS = given(seed=st.integers(0, 2**32))
QUICK = settings(max_examples=SHORT, deadline=None, suppress_health_check=list(HealthCheck))
THOROUGH = settings(max_examples=LONG, deadline=None, suppress_health_check=list(HealthCheck))

STATUSES = {200, 400, 404, 405, 413, 415, 500, 503}
Check = Callable[[int], Coroutine[Any, Any, None]]
PROTO = [REQUESTS[signal].SerializeToString() for signal in SIGNALS]
JSON = [to_json(REQUESTS[signal]) for signal in SIGNALS]
BODIES: dict[str, Callable[[bytes], bytes]] = {"": bytes, **COMPRESS, "br": bytes}


def damaged(chance: random.Random, data: bytes) -> bytes:
    """The bytes with a few changes: other bytes, repeated, removed and inserted pieces."""
    changed = bytearray(data)
    for _ in range(chance.choice((0, 1, 1, 2, 5, 20))):
        position = chance.randrange(len(changed) + 1)
        end = min(len(changed), position + chance.choice((1, 2, 8, 100)))
        match chance.randrange(5):
            case 0:
                changed[position:end] = chance.randbytes(end - position)
            case 1:
                del changed[position:end]
            case 2:
                changed[position:position] = changed[position:end] * chance.choice((1, 3, 50))
            case 3:
                changed[position:position] = chance.randbytes(chance.choice((1, 4, 64)))
            case _:
                changed[position:end] = chance.choice((b"\x00", b"\xff", b"\x80\x80\x80\x80\x10")) * (end - position)
    return bytes(changed)


def make_intake() -> OtlpIntake:
    return OtlpIntake(Recording(), make_context("receivers", "otlp", clock=SystemClock()), 1 << 24)


async def post_damaged(seed: int) -> None:
    chance, intake = random.Random(seed), make_intake()
    app = HttpApp(HttpConfig(max_request_body_size=1 << 20), intake, None)
    for _ in range(REQUESTS_A_SEED):
        status = await _post(app, chance)
        assert status in STATUSES, status
        await until(lambda: intake.room.used == 0)


async def _post(app: HttpApp, chance: random.Random) -> int:
    compression, index = chance.choice(list(BODIES)), chance.randrange(len(SIGNALS))
    as_json = chance.random() < 0.4
    body = damaged(chance, BODIES[compression](damaged(chance, (JSON if as_json else PROTO)[index])))
    headers = [
        (b"content-type", b"application/json" if as_json else b"application/x-protobuf"),
        (b"content-encoding", compression.encode()),
        (b"origin", chance.randbytes(3)),
    ]
    if chance.random() < 0.05:
        headers[0] = (b"content-type", damaged(chance, headers[0][1]))
    path = chance.choice((*map(HttpConfig().url_path, SIGNALS), "/v1/x"))
    scope = {"method": chance.choice(("POST",) * 9 + ("GET",)), "path": path, "headers": headers, "query_string": b""}
    cut = chance.randrange(len(body) + 1)
    parts = [{"body": body[:cut], "more_body": True}, {"body": body[cut:], "more_body": False}]
    sent: list[dict[str, Any]] = []

    async def receive() -> dict[str, Any]:
        return {"type": "http.request", **parts.pop(0)}

    async def send(message: dict[str, Any]) -> None:
        sent.append(message)

    await app(scope, receive, send)
    return int(sent[0]["status"])


class Wire(asyncio.Transport):
    """A transport that keeps what is written."""

    def __init__(self) -> None:
        super().__init__()
        self.written = b""
        self.closed = False

    def write(self, data: Any) -> None:
        self.written += data

    def is_closing(self) -> bool:
        return self.closed

    def close(self) -> None:
        self.closed = True

    abort = close

    def frames(self) -> list[int]:
        """The kinds of the written frames. Fails if they are not whole."""
        kinds, position = [], 0
        while position < len(self.written):
            kinds.append(self.written[position + 3])
            position += 9 + int.from_bytes(self.written[position : position + 3])
        assert position == len(self.written)
        return kinds


def some_frames(chance: random.Random) -> bytes:
    """A few frames, mostly valid ones, on a few streams."""
    stream = chance.choice((1, 1, 3, 5, 0, 2))
    message = damaged(chance, chance.choice(PROTO))
    kinds: list[Callable[[], bytes]] = [
        lambda: request(stream, message),
        lambda: request(stream, message),
        lambda: opening(stream),
        lambda: frame(DATA, chance.choice((0, 1, 8, 9)), stream, message_of(message)),
        lambda: frame(DATA, 0, stream, chance.randbytes(chance.randrange(20))),
        lambda: frame(HEADERS, chance.choice((0, 4, 5, 8, 0x20, 0x2D)), stream, chance.randbytes(30)),
        lambda: frame(CONTINUATION, chance.choice((0, END_HEADERS)), stream, chance.randbytes(10)),
        lambda: frame(RST_STREAM, 0, stream, bytes(4)),
        lambda: settings_frame({chance.randrange(8): chance.choice((0, 1, 65535, 2**31 - 1, 2**32 - 1))}),
        lambda: frame(PING, 0, 0, bytes(8)),
        lambda: window_update(stream, chance.choice((0, 1, 1000, 2**31 - 1))),
        lambda: frame(PRIORITY, 0, stream, bytes(5)),
        lambda: frame(chance.randrange(256), chance.randrange(256), stream, chance.randbytes(chance.randrange(40))),
    ]
    return b"".join(chance.choice(kinds)() for _ in range(chance.randrange(1, 6)))


async def connect_damaged(seed: int) -> None:
    chance, intake = random.Random(seed), make_intake()
    method = ExportMethod("metrics", intake, None, 1 << 20)

    def route(headers: Any) -> Method:
        if not headers.get(":path", "").endswith("Export"):
            raise unserved("there is no such method")
        return method

    for _ in range(REQUESTS_A_SEED):
        begun: list[Http2Connection] = []
        ended: list[Http2Connection] = []
        limits = Http2Limits(message=1 << 20, streams=3)
        parts = ServerParts(route, intake.room, limits, SystemClock().monotonic)
        connection = Http2Connection(parts, begun.append, ended.append, lambda _: None)
        wire = Wire()
        connection.connection_made(wire)
        data = PREFACE + settings_frame({}) + some_frames(chance)
        data = damaged(chance, data) if chance.random() < 0.5 else data
        while data and not wire.closed:
            size = chance.choice((1, 7, 100, 5000))
            connection.data_received(data[:size])
            data = data[size:]
            if chance.random() < 0.2:
                await asyncio.sleep(0)
        await asyncio.sleep(0)
        kinds = wire.frames()
        assert wire.closed or GOAWAY not in kinds
        connection.sweep(SystemClock().monotonic(), 0.25)
        connection.connection_lost(None)
        assert begun == ended == [connection]
        assert connection.is_idle
        await until(lambda: intake.room.used == 0)


def run(check: Coroutine[Any, Any, None]) -> None:
    """Runs a check. Errors of its tasks and callbacks count too."""
    problems: list[Any] = []

    async def watched() -> None:
        asyncio.get_running_loop().set_exception_handler(lambda _, context: problems.append(context))
        await check
        await asyncio.sleep(0)

    asyncio.run(watched())
    assert problems == []


CHECKS = pytest.mark.parametrize("check", [post_damaged, connect_damaged])


@CHECKS
@QUICK
@SEEDS
def test_damage_gets_documented_answers_and_leaves_no_trace(check: Check, seed: int) -> None:
    run(check(seed))


@pytest.mark.soak
@CHECKS
@THOROUGH
@SEEDS
def test_half_a_million_times_damage_gets_documented_answers_and_leaves_no_trace(check: Check, seed: int) -> None:
    run(check(seed))
