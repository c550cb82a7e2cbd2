"""An HTTP client for the JSON APIs. Its credentials are files, which are read again when they change."""

import asyncio
import json
import re
import socket
import ssl
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final, Self

from otel_zernel.component import Context
from otel_zernel.errors import NoAnswer
from otel_zernel.text import printable
from otel_zernel_libraries.clients.api_access import Access
from otel_zernel_libraries.serving.watching import WatchedFiles

if TYPE_CHECKING:  # importing httpx takes 100 ms, and validation does not need it
    from httpx import AsyncClient, Response

Json = dict[str, Any]
LONGEST_ANSWER: Final = 64 << 20
"""Bytes. Longer answers are refused before they are parsed."""
_LARGE: Final = 1 << 20
"""Bytes. Parsing more takes over 10 ms."""
_LIST: Final = re.compile(r'"jobs"\s*:\s*\[\s*')
"""The list in an answer of Slurm. It has all jobs of the cluster, some kB each."""
_CREDENTIALS_INTERVAL: Final = 5.0
"""Seconds between two readings of the credentials: Kubernetes replaces tokens minutes before they expire."""
_KEEP_ALIVE: Final = (
    (socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1),
    *((socket.IPPROTO_TCP, getattr(socket, name), value) for name, value in
      (("TCP_KEEPIDLE", 20), ("TCP_KEEPINTVL", 10), ("TCP_KEEPCNT", 3)) if hasattr(socket, name)),
)  # fmt: skip
"""A stream whose server vanished without a word ends after 50 s."""


@dataclass(frozen=True, slots=True)
class JsonAnswer:
    """The answer to one request."""

    status: int
    body: Json
    """The JSON object; empty if the answer is something else."""
    text: str
    """The start of the answer, for messages."""

    @property
    def ok(self) -> bool:
        return 200 <= self.status < 300


class JsonClient:
    """Requests to one API, while it is entered. Every failure to get an answer is an `NoAnswer`."""

    def __init__(self, read: Callable[[], Access], name: str, setting: str, timeout: float, context: Context) -> None:
        """`read` reads the credentials, in a thread, and raises `CannotStart`. `name` is that of the API in messages.

        `setting` is the configuration key of the credentials. `timeout` is in s, for one request.
        """
        self._read = read
        self._name = name
        self._setting = setting
        self._timeout = timeout
        self._files = WatchedFiles(self._renewed, setting, _CREDENTIALS_INTERVAL, context)
        self._connected: tuple[Access, AsyncClient] | None = None
        self._replaced: list[AsyncClient] = []

    async def __aenter__(self) -> Self:
        """Reads the credentials. Raises `CannotStart`, which names an unusable file."""
        await self._files.__aenter__()
        return self

    async def __aexit__(self, *_: object) -> None:
        await self._files.__aexit__()
        clients = [*self._replaced, *([self._connected[1]] if self._connected else [])]
        self._connected = None
        self._replaced.clear()
        for client in clients:
            await client.aclose()

    async def call(
        self, method: str, path: str, *, params: Mapping[str, str] | None = None, body: Json | None = None
    ) -> JsonAnswer:
        """The whole answer to a request, whatever its status is. Raises `NoAnswer`."""
        async with self._request(method, path, params, body, self._timeout) as response:
            return await self._answer(response)

    @asynccontextmanager
    async def stream(
        self, path: str, params: Mapping[str, str], silence: float, *, begins_at_once: bool = False
    ) -> AsyncIterator["Stream"]:
        """An answer that is read in pieces as they arrive. A pause of more than `silence` s ends it with an error.

        `begins_at_once`: the server sends the status before the first piece, so `timeout` is the limit for it.
        """
        begin = self._timeout if begins_at_once else None
        async with self._request("GET", path, params, None, silence, begin) as response:
            ok = response.status_code == 200
            yield Stream(response, JsonAnswer(200, {}, "") if ok else await self._answer(response), self._failed)

    @asynccontextmanager
    async def _request(
        self,
        method: str,
        path: str,
        params: Mapping[str, str] | None,
        body: Json | None,
        silence: float,
        begin: float | None = None,
    ) -> AsyncIterator["Response"]:
        import httpx

        access, client = self._client()
        timeout = httpx.Timeout(self._timeout, read=silence)
        extensions = {"sni_hostname": access.server_name} if access.server_name else None
        request = client.build_request(
            method, access.server + path, params=params, json=body, headers=access.headers, timeout=timeout,
            extensions=extensions,
        )  # fmt: skip
        try:
            async with asyncio.timeout(begin):
                response = await client.send(request, stream=True)
        except (httpx.HTTPError, httpx.InvalidURL, OSError) as error:
            raise self._failed(error) from error
        try:
            yield response
        finally:
            await response.aclose()

    async def _answer(self, response: "Response") -> JsonAnswer:
        import httpx

        parts, length = [], 0
        try:
            async for part in response.aiter_bytes():
                parts.append(part)
                if (length := length + len(part)) > LONGEST_ANSWER:
                    raise NoAnswer(f"{self._name}: an answer is longer than {LONGEST_ANSWER >> 20} MiB")
        except (httpx.HTTPError, httpx.StreamError, OSError) as error:
            raise self._failed(error) from error
        data = b"".join(parts)
        body = await asyncio.to_thread(_large_object, data) if len(data) > _LARGE else _object(data)
        return JsonAnswer(response.status_code, body, printable(data[:300].decode("utf-8", "replace")))

    def _failed(self, error: Exception) -> NoAnswer:
        cause = f"{type(error).__name__} {error}".strip()
        return NoAnswer(f"{self._name} at {self._files.value[0].server} gives no answer: {printable(cause)}")

    def _client(self) -> "tuple[Access, AsyncClient]":
        """The newest credentials, and a client that fits them. Requests in progress keep their own."""
        access, security = self._files.value
        known = self._connected
        if known and known[0].same_connections(access):
            self._connected = (access, known[1])
        else:
            if known:
                self._replaced.append(known[1])
            self._connected = (access, _connect(access, security))
        return self._connected

    def _renewed(self, old: tuple[Access, ssl.SSLContext] | None) -> tuple[Access, ssl.SSLContext]:
        import httpx  # noqa: F401  # in this thread: the first import takes 100 ms

        access = self._read()
        if old and old[0].same_connections(access):
            return old if old[0] == access else (access, old[1])
        return access, access.tls(self._setting)


class Stream:
    """A streamed answer. `refusal` is the answer itself if its status is not 200."""

    def __init__(self, response: "Response", answer: JsonAnswer, failed: Callable[[Exception], NoAnswer]) -> None:
        self._response = response
        self._failed = failed
        self.refusal = None if answer.status == 200 else answer

    async def pieces(self) -> AsyncIterator[bytes]:
        """The bytes as they arrive. Raises `NoAnswer` if the connection breaks."""
        import httpx

        try:
            async for piece in self._response.aiter_bytes():
                yield piece
        except (httpx.HTTPError, httpx.StreamError, OSError) as error:
            raise self._failed(error) from error


def _connect(access: Access, security: ssl.SSLContext) -> "AsyncClient":
    import httpx

    transport = httpx.AsyncHTTPTransport(
        verify=security, uds=access.socket, proxy=access.proxy, socket_options=None if access.socket else _KEEP_ALIVE,
        limits=httpx.Limits(max_connections=None, max_keepalive_connections=8, keepalive_expiry=30),
    )  # fmt: skip
    # The variables of proxies, and the passwords in ~/.netrc, are not meant for these servers.
    return httpx.AsyncClient(transport=transport, trust_env=False)


def _object(data: bytes) -> Json:
    try:
        loads = json.loads(data)
    except (ValueError, RecursionError):
        return {}
    return loads if isinstance(loads, dict) else {}


def _large_object(data: bytes) -> Json:
    """As `_object`, but for a thread: the parser keeps the lock of the interpreter for one element at a time only."""
    try:
        text = data.decode()
        match = _LIST.search(text)
        if not match:
            return _object(data)
        elements, end = _elements(text, match.end())
        # The rest is small. Its list is empty, and must be the one that was read.
        rest = _object((text[: match.end()] + text[end:]).encode())
    except (ValueError, RecursionError, IndexError):
        return {}
    return {**rest, "jobs": elements} if rest.get("jobs") == [] else {}


def _elements(text: str, position: int) -> tuple[list[Any], int]:
    """The elements of a list, and the position of its `]`. Raises `ValueError` and `IndexError`."""
    decoder, elements = json.JSONDecoder(), []
    while text[position] != "]":
        element, position = decoder.raw_decode(text, position)
        elements.append(element)
        position = _after_space(text, position)
        if text[position] == ",":
            position = _after_space(text, position + 1)
    return elements, position


def _after_space(text: str, position: int) -> int:
    while text[position] in " \t\r\n":
        position += 1
    return position
