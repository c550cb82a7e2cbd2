"""The frames that end a call."""

from otel_zernel_libraries.serving.http2.wire import (
    DATA,
    END_HEADERS,
    END_STREAM,
    FRAME_HEAD,
    HEADERS,
    RST_STREAM,
    UINT32,
    ErrorCode,
    frame,
    message_of,
    response_headers,
    trailers,
)
from otel_zernel_libraries.serving.requests.failures import RequestFailure

SUCCESS = trailers(0, "")
"""The trailers of a call that succeeds."""
_FRAMES = (
    frame(HEADERS, END_HEADERS, 0, response_headers()),
    frame(DATA, 0, 0, message_of(b"")),
    frame(HEADERS, END_STREAM | END_HEADERS, 0, SUCCESS),
)
EMPTY_SUCCESS = b"".join(one[:5] + b"\xff" * 4 + one[FRAME_HEAD:] for one in _FRAMES).split(b"\xff" * 4)
"""The usual answer, an empty message and success: the id of the stream belongs between the pieces."""


def refusal(stream: int, failure: RequestFailure, *, half_closed: bool) -> bytes:
    """The frames that end a call before any answer."""
    end = frame(HEADERS, END_STREAM | END_HEADERS, stream, response_headers() + status_of(failure))
    return end if half_closed else end + stop(stream)


def status_of(failure: RequestFailure) -> bytes:
    """The trailers of a call that fails."""
    details = failure.as_status().SerializeToString() if failure.retry_after is not None else b""
    return trailers(failure.code, str(failure), details)


def stop(stream: int) -> bytes:
    """After an early answer: the client need not send the rest."""
    return frame(RST_STREAM, 0, stream, UINT32.pack(ErrorCode.NO_ERROR))
