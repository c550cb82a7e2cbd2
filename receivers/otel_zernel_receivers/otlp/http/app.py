"""OTLP over HTTP, as an ASGI application: credentials first, then the body as far as there is room."""

import asyncio
from collections.abc import Awaitable, Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import partial
from http import HTTPStatus
from typing import Any, Final
from urllib.parse import parse_qsl

from otel_zernel.authentication import ServerAuthenticator, Unauthenticated
from otel_zernel.batch import SIGNALS, Batch, Signal, count_items
from otel_zernel.batch.signals import MESSAGE_TYPES
from otel_zernel.errors import DecodeError
from otel_zernel.otlp.json import parse_json
from otel_zernel_libraries.serving.access import joined_headers
from otel_zernel_libraries.serving.cors import Cors
from otel_zernel_libraries.serving.requests.decompression import body_too_large, decompress
from otel_zernel_libraries.serving.requests.failures import (
    CONTENT_TYPES,
    Encoding,
    RequestFailure,
    unauthenticated,
    undecodable,
    unserved,
    unsupported,
)
from otel_zernel_libraries.serving.requests.room import Hold
from otel_zernel_receivers.otlp.config import HttpConfig
from otel_zernel_receivers.otlp.intake import LARGE, OtlpIntake, in_thread_if_large, unused

TRANSPORT: Final = "http"
LIMIT: Final = "max_request_body_size"
_DEFAULT_LIMIT: Final = 20 << 20
_MOST_PARAMETERS: Final = 100
_SUCCESS: Final[Mapping[Encoding, bytes]] = {"proto": b"", "json": b"{}"}
_ENCODINGS: Final[Mapping[str, Encoding]] = {content_type: name for name, content_type in CONTENT_TYPES.items()}

Receive = Callable[[], Awaitable[dict[str, Any]]]
Send = Callable[[dict[str, Any]], Awaitable[None]]


class Disconnected(Exception):
    """The sender has gone. Nobody waits for an answer."""


@dataclass(frozen=True, slots=True)
class Answer:
    """A response without its general headers."""

    status: HTTPStatus
    content_type: str
    body: bytes
    headers: Mapping[str, str]


def _plain(status: HTTPStatus, text: str, headers: Mapping[str, str] | None = None) -> Answer:
    return Answer(status, "text/plain; charset=utf-8", text.encode(), headers or {})


class HttpApp:
    """The ASGI application."""

    def __init__(self, config: HttpConfig, intake: OtlpIntake, authenticator: ServerAuthenticator | None) -> None:
        self._intake = intake
        self._authenticator = authenticator
        self._parameters = config.auth.request_params if config.auth else []
        self._cors = Cors(config.cors)
        self._limit = config.max_request_body_size or _DEFAULT_LIMIT
        self._compressions = frozenset(config.compression_algorithms)
        self._signals: dict[str, Signal] = {config.url_path(signal): signal for signal in SIGNALS}
        self._headers = {name.lower(): value.get_secret_value() for name, value in config.response_headers.items()}
        if not config.keep_alives_enabled:
            self._headers["connection"] = "close"

    async def __call__(self, scope: Mapping[str, Any], receive: Receive, send: Send) -> None:
        headers = joined_headers(scope["headers"])
        try:
            answer = self._preflight(scope, headers) or await self._answer(scope, headers, receive)
        except Disconnected:
            return
        all_headers = {
            "content-type": answer.content_type,
            "content-length": str(len(answer.body)),
            **self._headers,
            **answer.headers,
        }
        encoded = [(name.encode("latin-1"), value.encode("latin-1")) for name, value in all_headers.items()]
        await send({"type": "http.response.start", "status": int(answer.status), "headers": encoded})
        await send({"type": "http.response.body", "body": answer.body})

    def _preflight(self, scope: Mapping[str, Any], headers: Mapping[str, str]) -> Answer | None:
        """The answer to a browser that asks whether a page may send; None for another request."""
        allowed = self._cors.preflight(headers) if scope["method"] == "OPTIONS" else None
        return _plain(HTTPStatus.NO_CONTENT, "", allowed) if allowed is not None else None

    async def _answer(self, scope: Mapping[str, Any], headers: Mapping[str, str], receive: Receive) -> Answer:
        method, cors = scope["method"], self._cors.headers(headers)
        if method != "POST":
            text = f"{method} is not supported; send OTLP by POST\n"
            return _plain(HTTPStatus.METHOD_NOT_ALLOWED, text, {**cors, "allow": "POST"})
        content_type = headers.get("content-type", "")
        encoding = _ENCODINGS.get(content_type.partition(";")[0].strip().lower())
        if encoding is None:
            text = f"Content-Type must be {' or '.join(_ENCODINGS)}, not {content_type:.100}\n"
            return _plain(HTTPStatus.UNSUPPORTED_MEDIA_TYPE, text, cors)
        answer = await self._receive(scope, headers, encoding, receive)
        return replace(answer, headers={**cors, **answer.headers})

    async def _receive(
        self, scope: Mapping[str, Any], headers: Mapping[str, str], encoding: Encoding, receive: Receive
    ) -> Answer:
        try:
            await self._authenticate(scope, headers)
            signal = self._signal(scope["path"])
            with self._arriving() as hold:
                body = await self._read(headers, receive, hold)
                hold.arrived()
                await self._take(signal, encoding, body, headers.get("content-encoding", ""), hold)
        except RequestFailure as failure:
            self._intake.count(failure, TRANSPORT)
            return self._failed(failure, encoding)
        return Answer(HTTPStatus.OK, CONTENT_TYPES[encoding], _SUCCESS[encoding], {})

    def _failed(self, failure: RequestFailure, encoding: Encoding) -> Answer:
        headers = {"retry-after": str(failure.retry_after)} if failure.retry_after is not None else {}
        if failure.status == HTTPStatus.UNAUTHORIZED and self._authenticator and self._authenticator.challenge:
            headers["www-authenticate"] = self._authenticator.challenge
        return Answer(failure.status, CONTENT_TYPES[encoding], failure.body(encoding), headers)

    async def _authenticate(self, scope: Mapping[str, Any], headers: Mapping[str, str]) -> None:
        if self._authenticator is None:
            return
        if self._parameters:
            query = _parameters(scope["query_string"].decode("latin-1"))
            headers = {name.lower(): query[name] for name in self._parameters if name in query} | dict(headers)
        try:
            await self._authenticator.authenticate(headers)
        except Unauthenticated as error:
            raise unauthenticated(str(error)) from error

    def _signal(self, path: str) -> Signal:
        signal = self._signals.get(path)
        if signal is None:
            raise unserved(f"there is nothing at {path:.100}; OTLP is at {', '.join(self._signals)}")
        if signal not in self._intake.signals:
            raise unserved(unused(signal))
        return signal

    @contextmanager
    def _arriving(self) -> Iterator[Hold]:
        """The room of one request. If the request must leave, its `RequestFailure` is raised here."""
        task, evicted = asyncio.current_task(), list[RequestFailure]()

        def evict(failure: RequestFailure) -> None:
            evicted.append(failure)
            if task:
                task.cancel()

        hold = self._intake.room.take(evict)
        try:
            yield hold
        except asyncio.CancelledError:
            if evicted and task and not task.uncancel():
                raise evicted[0] from None
            raise
        finally:
            hold.give_back()

    async def _read(self, headers: Mapping[str, str], receive: Receive, hold: Hold) -> bytes:
        """The body as sent. Raises `RequestFailure` as soon as it is too large, or if there is no room."""
        compression = headers.get("content-encoding", "").lower()
        if ("" if compression == "identity" else compression) not in self._compressions:
            known = ", ".join(sorted(filter(None, self._compressions))) or "none"
            raise unsupported(f"Content-Encoding {compression:.100} is not supported; use {known}")
        if int(headers.get("content-length", 0)) > self._limit:  # the server has checked that it is a number
            raise body_too_large(self._limit, LIMIT)
        parts, size, more = [], 0, True
        while more:
            message = await receive()
            if message["type"] == "http.disconnect":
                raise Disconnected
            part = message.get("body", b"")
            size += len(part)
            if size > self._limit:
                raise body_too_large(self._limit, LIMIT)
            hold.add(len(part))
            parts.append(part)
            more = message.get("more_body", False)
        return b"".join(parts)

    async def _take(self, signal: Signal, encoding: Encoding, body: bytes, compression: str, hold: Hold) -> None:
        compression = compression.lower()
        if compression not in ("", "identity"):
            body = await in_thread_if_large(len(body) * 4, decompress, compression, body, self._limit, LIMIT)
            hold.add(len(body))
        if encoding == "proto":
            batch = await self._intake.decode(signal, body)
        elif len(body) < LARGE:
            batch = _batch_of_json(signal, body)
        else:
            batch = await self._intake.in_turn(partial(_batch_of_json, signal, body))
        if not self._intake.accept_at_once(batch, TRANSPORT):
            await self._intake.accept(batch, TRANSPORT)


def _parameters(query: str) -> dict[str, str]:
    try:
        return dict(parse_qsl(query, max_num_fields=_MOST_PARAMETERS))
    except ValueError as error:
        raise unauthenticated(f"the URL has more than {_MOST_PARAMETERS} parameters") from error


def _batch_of_json(signal: Signal, body: bytes) -> Batch:
    try:
        message = parse_json(MESSAGE_TYPES[signal], body)
    except DecodeError as error:
        raise undecodable(str(error)) from error
    return Batch.encoded(signal, message.SerializeToString(), count_items(message))
