"""HTTP/2 as RFC 9113 demands: what is allowed works, and each violation ends with its error code. After h2spec."""

import asyncio
from collections.abc import AsyncIterator, Callable

import pytest

from otel_zernel.testing import FakeClock
from otel_zernel_libraries.serving.grpc import HEALTH
from otel_zernel_libraries.serving.http2 import Http2Limits
from otel_zernel_libraries.serving.http2.limits import HEADER_BLOCK, Pings
from otel_zernel_libraries.serving.http2.wire import (
    ACK,
    CONTINUATION,
    DATA,
    END_HEADERS,
    END_STREAM,
    GOAWAY,
    HAS_PRIORITY,
    HEADERS,
    INITIAL_WINDOW_SIZE,
    PADDED,
    PING,
    PREFACE,
    PRIORITY,
    PUSH_PROMISE,
    RST_STREAM,
    SETTINGS,
    UINT32,
    WINDOW_UPDATE,
    ConnectionBroken,
    ErrorCode,
    encode_headers,
    frame,
    message_of,
    settings,
    window_update,
)
from otel_zernel_receivers.otlp import OtlpReceiver
from tests.receivers.otlp.http2.raw import REQUEST_HEADERS, RawClient, connected, headers_for, opening, request
from tests.receivers.otlp.serving import Recording, gauge, receiving

MESSAGE = gauge().SerializeToString()
BLOCK = encode_headers(REQUEST_HEADERS)
WATCH = headers_for(f"/{HEALTH}/Watch")
P, F = ErrorCode.PROTOCOL_ERROR, ErrorCode.FRAME_SIZE_ERROR
W, C = ErrorCode.FLOW_CONTROL_ERROR, ErrorCode.COMPRESSION_ERROR
REQUIRED = (":method", ":scheme", ":path")
VIOLATIONS: dict[str, tuple[bytes, ErrorCode]] = {
    "data on stream 0": (frame(DATA, 0, 0, b"x"), P),
    "data on an idle stream": (frame(DATA, 0, 1, b"x"), P),
    "headers on stream 0": (frame(HEADERS, END_HEADERS, 0, BLOCK), P),
    "headers on an even stream": (frame(HEADERS, END_HEADERS, 2, BLOCK), P),
    "continuation without headers": (frame(CONTINUATION, END_HEADERS, 1, b""), P),
    "an interrupted header block": (frame(HEADERS, 0, 1, BLOCK) + frame(PING, 0, 0, bytes(8)), P),
    "continuation of another stream": (frame(HEADERS, 0, 1, BLOCK) + frame(CONTINUATION, END_HEADERS, 3), P),
    "padding that is too long": (frame(HEADERS, END_HEADERS | PADDED, 1, b"\xff" + BLOCK[:5]), P),
    "padded data that is empty": (opening(1) + frame(DATA, PADDED, 1, b""), P),
    "priority of a wrong size": (frame(PRIORITY, 0, 1, b"x"), F),
    "priority on stream 0": (frame(PRIORITY, 0, 0, bytes(5)), P),
    "a reset of an idle stream": (frame(RST_STREAM, 0, 1, bytes(4)), P),
    "a reset of stream 0": (frame(RST_STREAM, 0, 0, bytes(4)), P),
    "a reset of a wrong size": (opening(1) + frame(RST_STREAM, 0, 1, b"x"), F),
    "settings on a stream": (frame(SETTINGS, 0, 1, b""), P),
    "settings of a wrong size": (frame(SETTINGS, 0, 0, b"x"), F),
    "an acknowledgement with settings": (frame(SETTINGS, ACK, 0, bytes(6)), F),
    "a window setting that is too large": (settings({INITIAL_WINDOW_SIZE: 2**31}), W),
    "a promise": (frame(PUSH_PROMISE, 0, 1, bytes(4)), P),
    "a ping on a stream": (frame(PING, 0, 1, bytes(8)), P),
    "a ping of a wrong size": (frame(PING, 0, 0, b"x"), F),
    "a goaway on a stream": (frame(GOAWAY, 0, 1, bytes(8)), P),
    "a window update of 0": (frame(WINDOW_UPDATE, 0, 0, bytes(4)), P),
    "a window update of a wrong size": (frame(WINDOW_UPDATE, 0, 0, b"x"), F),
    "a window update of an idle stream": (frame(WINDOW_UPDATE, 0, 9, UINT32.pack(1)), P),
    "a window that overflows": (window_update(0, 2**31 - 1), W),
    "a block that is not HPACK": (frame(HEADERS, END_HEADERS, 1, b"\xff" * 20), C),
    "a reference beyond the table": (frame(HEADERS, END_HEADERS, 1, b"\xfe"), C),
    "headers that are too long": (
        frame(HEADERS, 0, 1, bytes(HEADER_BLOCK)) + frame(CONTINUATION, 0, 1, bytes(1)),
        ErrorCode.ENHANCE_YOUR_CALM,
    ),
    "the setting ENABLE_PUSH with 2": (settings({2: 2}), P),
    "the setting MAX_FRAME_SIZE below its least": (settings({5: 16383}), P),
    "the setting MAX_FRAME_SIZE above its most": (settings({5: 2**24}), P),
    "a second request on a stream": (request(1, b"") + opening(1), P),
    "a stream that is smaller than the last": (request(5, b"") + opening(3), P),
    "a table size over the limit": (frame(HEADERS, END_HEADERS, 1, b"\x3f\xe2\x1f" + BLOCK), C),
    "a table size behind a header": (frame(HEADERS, END_HEADERS, 1, BLOCK + b"\x20"), C),
    "a text with 8 bits of Huffman padding": (frame(HEADERS, END_HEADERS, 1, BLOCK + b"\x00\x01x\x82\x1f\xff"), C),
    "a text with the end symbol of Huffman": (frame(HEADERS, END_HEADERS, 1, BLOCK + b"\0\x01x\x84" + b"\xff" * 4), C),
    "a reference to the entry 0": (frame(HEADERS, END_HEADERS, 1, b"\x80"), C),
    "a frame that is too long": (frame(HEADERS, END_HEADERS, 1, bytes(HEADER_BLOCK + 1)), F),
}
STREAM_VIOLATIONS: dict[str, tuple[bytes, ErrorCode]] = {
    "data after the end": (
        opening(1, WATCH) + frame(DATA, END_STREAM, 1, message_of(b"")) + frame(DATA, 0, 1, b"x"),
        ErrorCode.STREAM_CLOSED,
    ),
    "headers inside of a request": (opening(1) + opening(1), P),
    "a window of a stream that overflows": (opening(1, WATCH) + window_update(1, 2**31 - 1), W),
    "a name in upper case": (opening(1, [*REQUEST_HEADERS, ("X-Test", "ok")]), P),
    "an unknown pseudo-header": (opening(1, [(":test", "ok"), *REQUEST_HEADERS]), P),
    "a pseudo-header of answers": (opening(1, [(":status", "200"), *REQUEST_HEADERS]), P),
    "a pseudo-header behind others": (opening(1, [("x", "ok"), *REQUEST_HEADERS]), P),
    "a repeated pseudo-header": (opening(1, [REQUEST_HEADERS[0], *REQUEST_HEADERS]), P),
    "a pseudo-header in trailers": (
        opening(1) + frame(HEADERS, END_HEADERS | END_STREAM, 1, encode_headers([(":method", "POST")])),
        P,
    ),
    "trailers that do not end the request": (
        opening(1) + frame(HEADERS, END_HEADERS, 1, encode_headers([("x", "y")])),
        P,
    ),
    "a connection header": (opening(1, [*REQUEST_HEADERS, ("connection", "keep-alive")]), P),
    "a TE header besides trailers": (
        opening(1, [one for one in REQUEST_HEADERS if one[0] != "te"] + [("te", "trailers, deflate")]),
        P,
    ),
    **{f"no {name}": (opening(1, [one for one in REQUEST_HEADERS if one[0] != name]), P) for name in REQUIRED},
    "an empty path": (opening(1, headers_for("")), P),
    "a window update of 0 on a stream": (opening(1) + frame(WINDOW_UPDATE, 0, 1, bytes(4)), P),
}
"""Violations of one stream (RFC 9113, 5.4.2 and 8.1.1): the others go on."""


@pytest.fixture
async def downstream() -> Recording:
    return Recording()


@pytest.fixture
async def receiver(downstream: Recording) -> AsyncIterator[OtlpReceiver]:
    async with receiving(downstream, {"grpc": {"endpoint": "localhost:0", "max_concurrent_streams": 5}}) as one:
        yield one


@pytest.fixture
async def client(receiver: OtlpReceiver) -> AsyncIterator[RawClient]:
    async with connected(receiver) as one:
        yield one


async def test_a_call_in_single_bytes_is_a_call(receiver: OtlpReceiver, downstream: Recording) -> None:
    async with connected(receiver, greet=False) as client:
        for byte in PREFACE + settings({}) + request(1, MESSAGE):
            await client.send(bytes((byte,)))
        assert await client.status(1) == 0
    assert downstream.batches[0].bytes_of("metrics") == MESSAGE


@pytest.mark.parametrize(
    "frames",
    [
        frame(HEADERS, END_HEADERS, 1, BLOCK) + frame(DATA, 0, 1, message_of(MESSAGE)) + frame(DATA, END_STREAM, 1),
        frame(HEADERS, END_HEADERS | HAS_PRIORITY, 1, bytes(5) + BLOCK)
        + frame(DATA, END_STREAM, 1, message_of(MESSAGE)),
        frame(HEADERS, END_HEADERS | PADDED, 1, b"\x03" + BLOCK + bytes(3))
        + frame(DATA, END_STREAM | PADDED, 1, b"\x07" + message_of(MESSAGE) + bytes(7)),
        frame(HEADERS, 0, 1, BLOCK[:50])
        + frame(CONTINUATION, 0, 1, BLOCK[50:60])
        + frame(CONTINUATION, END_HEADERS, 1, BLOCK[60:])
        + frame(DATA, END_STREAM, 1, message_of(MESSAGE)),
        frame(HEADERS, END_HEADERS, 1, BLOCK)
        + frame(DATA, 0, 1, message_of(MESSAGE))
        + frame(HEADERS, END_HEADERS | END_STREAM, 1, encode_headers([("checksum", "1")])),
        frame(PRIORITY, 0, 3, bytes(5)) + frame(0xBE, 0, 0, b"of the future") + request(1, MESSAGE),
        frame(PING, 0xF6, 0, bytes(8))
        + frame(HEADERS, END_HEADERS | 0xD2, 1, BLOCK)
        + frame(DATA, END_STREAM | 0xF6, 1, message_of(MESSAGE)),
        frame(HEADERS, END_HEADERS, 1 | 1 << 31, BLOCK) + frame(DATA, END_STREAM, 1 | 1 << 31, message_of(MESSAGE)),
        frame(0x10, 0, 0, UINT32.pack(1) + b"u=3, i")
        + request(1, MESSAGE, [*REQUEST_HEADERS, ("priority", "u=3, i"), ("content-length", str(len(MESSAGE) + 5))]),
        settings({0xBEEF: 1}) + window_update(0, 10) + request(1, MESSAGE) + window_update(1, 10),
    ],
    ids=[
        "empty last frame",
        "priority",
        "padding",
        "continuation",
        "trailers of the client",
        "unknown frames",
        "undefined flags",
        "reserved bit",
        "priority of RFC 9218",
        "unknown settings",
    ],
)
async def test_every_form_of_a_request_is_accepted(client: RawClient, downstream: Recording, frames: bytes) -> None:
    await client.send(frames)
    assert await client.status(1) == 0
    assert downstream.batches[0].bytes_of("metrics") == MESSAGE


async def test_settings_and_pings_are_acknowledged(client: RawClient) -> None:
    await client.send(frame(PING, 0, 0, b"12345678"))
    while not (acknowledged := await client.until(SETTINGS)).flags & ACK:
        pass
    assert acknowledged.payload == b""
    ping = await client.until(PING)
    assert (ping.flags, ping.payload) == (ACK, b"12345678")


async def test_a_padded_frame_may_have_any_size_and_arrive_in_any_pieces(
    client: RawClient, downstream: Recording
) -> None:
    message = gauge(3000).SerializeToString()
    padded = frame(DATA, END_STREAM | PADDED, 1, b"\xff" + message_of(message) + bytes(255))
    assert len(padded) > 4 * HEADER_BLOCK
    await client.send(opening(1))
    for start in range(0, len(padded), 9_999):
        await client.send(padded[start : start + 9_999])
        await asyncio.sleep(0)
    assert await client.status(1) == 0
    await client.send(opening(3))
    for byte in frame(DATA, END_STREAM | PADDED, 3, b"\x05" + message_of(MESSAGE) + bytes(5)):
        await client.send(bytes((byte,)))
    assert await client.status(3) == 0
    assert [batch.bytes_of("metrics") for batch in downstream.batches] == [message, MESSAGE]


async def test_padding_is_given_back_to_the_windows_since_a_message_fills_that_of_its_stream(client: RawClient) -> None:
    await client.send(opening(1), frame(DATA, PADDED, 1, b"\xff" + message_of(MESSAGE) + bytes(255)))
    while not (update := await client.until(WINDOW_UPDATE)).stream:
        pass
    assert (update.stream, update.payload) == (1, UINT32.pack(256))
    await client.send(frame(DATA, END_STREAM, 1))
    assert await client.status(1) == 0


async def test_more_than_the_window_arrives_since_the_window_is_renewed(receiver: OtlpReceiver) -> None:
    message = gauge(10_000).SerializeToString()
    async with connected(receiver) as client:
        for stream in range(1, 41, 2):  # 60 MB on one connection with a window of 16 MiB
            body = message_of(message)
            await client.send(opening(stream))
            for start in range(0, len(body), 1 << 20):
                end = END_STREAM if start + (1 << 20) >= len(body) else 0
                await client.send(frame(DATA, end, stream, body[start : start + (1 << 20)]))
            assert await client.status(stream) == 0


async def test_answers_wait_for_the_window_of_the_client(receiver: OtlpReceiver) -> None:
    async with connected(receiver, greet=False) as client:
        await client.send(PREFACE, settings({INITIAL_WINDOW_SIZE: 0}), request(1, MESSAGE))
        assert (await client.until(HEADERS)).flags & END_STREAM == 0
        await client.send(window_update(1, 3))
        assert len((await client.until(DATA)).payload) == 3
        await client.send(settings({INITIAL_WINDOW_SIZE: 100}))
        assert len((await client.until(DATA)).payload) == 2
        assert await client.status(1) == 0


async def test_calls_beyond_the_limit_are_refused_so_that_the_client_may_repeat_them(client: RawClient) -> None:
    await client.send(*(opening(stream) for stream in range(1, 13, 2)))
    reset = await client.until(RST_STREAM)
    assert (reset.stream, reset.payload) == (11, UINT32.pack(ErrorCode.REFUSED_STREAM))


async def test_a_message_that_ends_early_is_an_error_of_the_call_only(client: RawClient, downstream: Recording) -> None:
    await client.send(opening(1), frame(DATA, END_STREAM, 1, message_of(MESSAGE)[:-1]))
    assert await client.status(1) == 13
    await client.send(request(3, MESSAGE))
    assert await client.status(3) == 0
    assert len(downstream.batches) == 1


async def test_two_messages_in_one_call_are_an_error_of_the_call(client: RawClient, downstream: Recording) -> None:
    await client.send(opening(1), frame(DATA, END_STREAM, 1, message_of(MESSAGE) * 2))
    assert await client.status(1) == 13
    assert downstream.batches == []


async def test_a_message_that_announces_too_many_bytes_is_refused_at_once(client: RawClient) -> None:
    await client.send(opening(1), frame(DATA, 0, 1, b"\x00\xff\xff\xff\xff"))
    assert await client.status(1) == 8
    await client.send(frame(DATA, 0, 1, bytes(1000)), request(3, MESSAGE))  # what was under way is ignored
    assert await client.status(3) == 0


async def test_the_status_of_a_reset_call_is_not_sent(client: RawClient) -> None:
    await client.send(opening(1), frame(RST_STREAM, 0, 1, UINT32.pack(8)), request(3, MESSAGE))
    assert await client.status(3) == 0


@pytest.mark.parametrize("name", STREAM_VIOLATIONS)
async def test_a_violation_on_one_stream_resets_it_and_the_others_go_on(client: RawClient, name: str) -> None:
    frames, code = STREAM_VIOLATIONS[name]
    await client.send(frames)
    reset = await client.until(RST_STREAM)
    assert (reset.stream, reset.payload) == (1, UINT32.pack(code))
    await client.send(request(101, MESSAGE))
    assert await client.status(101) == 0


async def test_a_setting_that_overflows_the_window_of_a_stream_ends_the_connection(client: RawClient) -> None:
    await client.send(opening(1, WATCH), window_update(1, 2**31 - 1 - 65535), settings({INITIAL_WINDOW_SIZE: 65536}))
    assert await client.ended_with() == W


async def test_malformed_requests_count_as_nuisances(client: RawClient) -> None:
    bad = [*REQUEST_HEADERS, ("connection", "close")]
    await client.send(*(opening(stream, bad) for stream in range(1, 40_001, 2)))
    assert await client.ended_with() == ErrorCode.ENHANCE_YOUR_CALM


@pytest.mark.parametrize("name", VIOLATIONS)
async def test_a_violation_ends_the_connection_with_its_code(
    client: RawClient, receiver: OtlpReceiver, name: str
) -> None:
    frames, code = VIOLATIONS[name]
    await client.send(frames)
    assert await client.ended_with() == code
    async with connected(receiver) as other:
        await other.send(request(1, MESSAGE))
        assert await other.status(1) == 0


@pytest.mark.parametrize("start", [b"GET / HTTP/1.1\r\nHost: x\r\n\r\n", b"\x16\x03\x01", PREFACE + request(1, b"")])
async def test_a_client_that_does_not_greet_is_disconnected(receiver: OtlpReceiver, start: bytes) -> None:
    async with connected(receiver, greet=False) as client:
        await client.send(start)
        assert await client.ended_with() == P


async def test_headers_that_expand_too_much_are_refused(client: RawClient) -> None:
    # One long header in the table (limit 4096), then 5,000 references to it: 20 MB of headers in 9 kB.
    bomb = b"\x40" + encode_headers([("x", "y" * 3900)])[1:] + b"\xbe" * 5000
    await client.send(frame(HEADERS, END_HEADERS, 1, bomb))
    assert await client.ended_with() == ErrorCode.ENHANCE_YOUR_CALM


def strikes(limits: Http2Limits, gap: float, *, has_calls: bool) -> Callable[[], None]:
    clock = FakeClock()
    pings = Pings(limits, clock.monotonic)

    def ping() -> None:
        clock.advance(gap)
        pings.check(has_calls=has_calls)

    return ping


def test_a_client_that_pings_too_often_is_disconnected_as_by_other_grpc_servers() -> None:
    ping = strikes(Http2Limits(), 299, has_calls=True)
    for _ in range(3):
        ping()
    with pytest.raises(ConnectionBroken, match="too_many_pings"):
        ping()


@pytest.mark.parametrize(
    ("limits", "gap", "has_calls"),
    [
        (Http2Limits(), 301, True),
        (Http2Limits(least_ping_interval=10, pings_without_calls=True), 11, False),
        (Http2Limits(), 7201, False),
    ],
)
def test_a_client_that_pings_as_allowed_stays(limits: Http2Limits, gap: float, has_calls: bool) -> None:
    ping = strikes(limits, gap, has_calls=has_calls)
    answers = [ping() for _ in range(20)]  # raises ConnectionBroken if the client is to be disconnected
    assert len(answers) == 20


async def test_a_silent_client_is_pinged_and_closed_without_an_answer() -> None:
    keepalive = {"server_parameters": {"time": "100ms", "timeout": "200ms"}}
    protocols = {"grpc": {"endpoint": "localhost:0", "keepalive": keepalive}}
    async with receiving(Recording(), protocols) as receiver, connected(receiver) as client:
        assert (await client.until(PING)).flags == 0
        assert await client.ended_with() is None


@pytest.mark.parametrize("parameter", ["max_connection_idle", "max_connection_age"])
async def test_an_idle_or_old_connection_is_asked_to_leave(parameter: str) -> None:
    keepalive = {"server_parameters": {parameter: "100ms"}}
    protocols = {"grpc": {"endpoint": "localhost:0", "keepalive": keepalive}}
    async with receiving(Recording(), protocols) as receiver, connected(receiver) as client:
        assert await client.ended_with() == ErrorCode.NO_ERROR
