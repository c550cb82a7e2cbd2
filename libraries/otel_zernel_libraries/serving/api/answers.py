"""Requests and answers of the API: JSON, errors with a sentence, bodies with a bound, parameters of the query."""

import json
from collections.abc import Iterable, Mapping
from typing import Any, Final
from urllib.parse import parse_qsl

from otel_zernel.errors import ZernelError

_MOST_PARAMETERS: Final = 100
Headers = Iterable[tuple[bytes, bytes]]


class ApiError(ZernelError):
    """A request that an application refuses. The server answers with `status` and the message."""

    def __init__(self, status: int, sentence: str, headers: Headers = ()) -> None:
        super().__init__(sentence)
        self.status = status
        self.headers = (*headers,)


class ClientGone(ZernelError):
    """The client has disconnected, or the server ends. Nobody waits for an answer."""


async def json_answer(send: Any, value: Any, status: int = 200, headers: Headers = ()) -> None:
    """Answers with a value as JSON. `bytes` are JSON already. Raises `ValueError` if the value has NaN or infinity."""
    body = value if isinstance(value, bytes) else json_bytes(value)
    await plain_answer(send, body, "application/json", status, headers)


async def error_answer(send: Any, status: int, sentence: str, headers: Headers = (), *, http: bool = True) -> None:
    """Answers `{"error": sentence}`. `http` is false for the request of a WebSocket."""
    await plain_answer(send, json_bytes({"error": sentence}), "application/json", status, headers, http=http)


async def plain_answer(
    send: Any, body: bytes, content_type: str, status: int = 200, headers: Headers = (), *, http: bool = True
) -> None:
    """Answers with a body of any media type. `http` is false for the request of a WebSocket."""
    fixed = [(b"content-type", content_type.encode("latin-1")), (b"content-length", str(len(body)).encode())]
    response = "http.response" if http else "websocket.http.response"
    await send({"type": f"{response}.start", "status": status, "headers": [*fixed, *headers]})
    await send({"type": f"{response}.body", "body": body})


async def cached_answer(
    scope: Any, send: Any, body: bytes, content_type: str, tag: bytes, headers: Headers = ()
) -> None:
    """Answers with a body, or with 304 if the client has the one with this tag. It asks each time."""
    fixed = [(b"etag", tag), (b"cache-control", b"no-cache"), *headers]
    if tag in dict(scope["headers"]).get(b"if-none-match", b""):
        await send({"type": "http.response.start", "status": 304, "headers": fixed})
        await send({"type": "http.response.body", "body": b""})
    else:
        await plain_answer(send, body, content_type, headers=fixed)


def json_bytes(value: Any) -> bytes:
    """The value as compact JSON in UTF-8. Raises `ValueError` if it has NaN or infinity."""
    text = json.dumps(value, ensure_ascii=False, separators=(",", ":"), allow_nan=False)
    return text.encode("utf-8", "replace")


async def read_body(receive: Any, limit: int) -> bytes:
    """The body of a request. Raises `ApiError` (413) as soon as it is longer than `limit` bytes, or `ClientGone`."""
    parts, size, more = [], 0, True
    while more:
        message = await receive()
        if message["type"] != "http.request":
            raise ClientGone
        part = message.get("body", b"")
        size += len(part)
        if size > limit:
            raise ApiError(413, f"the body is longer than {limit} bytes")
        parts.append(part)
        more = message.get("more_body", False)
    return b"".join(parts)


async def client_gone(receive: Any) -> None:
    """Returns when the client disconnects, or when the server ends. For answers without an end, such as SSE."""
    while (await receive())["type"] not in ("http.disconnect", "websocket.disconnect"):
        pass


def query_of(scope: Mapping[str, Any]) -> Mapping[str, str]:
    """The parameters of the query by name, decoded. Of a repeated one, the last counts. Raises `ApiError` (400)."""
    try:
        pairs = parse_qsl(
            scope["query_string"].decode("latin-1"), keep_blank_values=True, max_num_fields=_MOST_PARAMETERS
        )
    except ValueError as error:
        raise ApiError(400, f"the URL has more than {_MOST_PARAMETERS} parameters") from error
    return dict(pairs)
