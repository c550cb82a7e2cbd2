"""Bytes that violate HTTP/2, and the code of the error that each must get."""

from otel_zernel_libraries.serving.grpc import HEALTH
from otel_zernel_libraries.serving.http2.limits import HEADER_BLOCK
from otel_zernel_libraries.serving.http2.wire import (
    ACK,
    CONTINUATION,
    DATA,
    END_HEADERS,
    END_STREAM,
    GOAWAY,
    HEADERS,
    INITIAL_WINDOW_SIZE,
    PADDED,
    PING,
    PRIORITY,
    PUSH_PROMISE,
    RST_STREAM,
    SETTINGS,
    UINT32,
    WINDOW_UPDATE,
    ErrorCode,
    encode_headers,
    frame,
    message_of,
    settings,
    window_update,
)
from tests.receivers.otlp.http2.raw import REQUEST_HEADERS, opening, request
from tests.receivers.otlp.serving import gauge

MESSAGE = gauge().SerializeToString()
BLOCK = encode_headers(REQUEST_HEADERS)
WATCH = [(name, f"/{HEALTH}/Watch" if name == ":path" else value) for name, value in REQUEST_HEADERS]
P, F, W, C = (
    ErrorCode.PROTOCOL_ERROR,
    ErrorCode.FRAME_SIZE_ERROR,
    ErrorCode.FLOW_CONTROL_ERROR,
    ErrorCode.COMPRESSION_ERROR,
)
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
    "a text with the end symbol of Huffman": (
        frame(HEADERS, END_HEADERS, 1, BLOCK + b"\x00\x01x\x84\xff\xff\xff\xff"),
        C,
    ),
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
    "an empty path": (opening(1, [(n, "" if n == ":path" else v) for n, v in REQUEST_HEADERS]), P),
    "a window update of 0 on a stream": (opening(1) + frame(WINDOW_UPDATE, 0, 1, bytes(4)), P),
}
"""Violations of one stream (RFC 9113, 5.4.2 and 8.1.1): the others go on."""
