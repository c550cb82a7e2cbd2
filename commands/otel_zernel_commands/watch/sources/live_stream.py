"""The live stream of a collector with the api extension, with resume (docs/development/live_state.md)."""

import asyncio
import errno
import json
import os
import ssl
import time
from collections.abc import Mapping
from email.utils import parsedate_to_datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from otel_zernel.errors import CannotStart, DecodeError
from otel_zernel.text import one_line, shown_url, visible, without_secrets
from otel_zernel_commands.watch.sources.watch_source import ReconnectWait, WatchSource
from otel_zernel_libraries.serving.api.live import SCHEMA, apply_delta

if TYPE_CHECKING:
    import httpx
from typing import NamedTuple

MOST_BYTES: Final = 64 << 20
"""Bytes of one event. The state of 1,024 ranks has about 16 MB."""


class ServerSentEvent(NamedTuple):
    """An event. `id` is empty if it has none."""

    type: str
    id: str
    data: bytes


class EventParser:
    """Splits a stream into events. Comments and unknown fields are ignored."""

    def __init__(self, most_bytes: int = MOST_BYTES) -> None:
        self._most_bytes = most_bytes
        self._held = bytearray()
        self._searched = 0
        self._type = ""
        self._id = ""
        self._data: list[bytes] = []
        self._size = 0

    def feed(self, piece: bytes) -> list[ServerSentEvent]:
        """The events that are complete now. Raises `DecodeError` if an event is too large."""
        self._held += piece
        events = []
        begin = 0
        while (end := self._held.find(b"\n", max(begin, self._searched))) >= 0:
            line = bytes(self._held[begin:end]).removesuffix(b"\r")
            begin = end + 1
            if line:
                self._add(line)
            elif (event := self._taken()) is not None:
                events.append(event)
        del self._held[:begin]
        self._searched = len(self._held)
        if self._size + len(self._held) > self._most_bytes:
            raise DecodeError(f"an event has more than {self._most_bytes >> 20} MiB")
        return events

    def _add(self, line: bytes) -> None:
        name, _, value = line.partition(b":")
        value = value.removeprefix(b" ")
        if name == b"data":
            self._data.append(value)
            self._size += len(value)
        elif name == b"event":
            self._type = value.decode("utf-8", "replace")
        elif name == b"id" and b"\0" not in value:
            self._id = value.decode("utf-8", "replace")

    def _taken(self) -> ServerSentEvent | None:
        event = ServerSentEvent(self._type or "message", self._id, b"\n".join(self._data)) if self._data else None
        self._type = ""
        self._data = []
        self._size = 0
        return event


_TABLES: Final = ("collector", "gpus", "ranks", "jobs", "timeline", "heat", "shares", "limits")
_CONNECT: Final = 10.0
_SILENCE: Final = 45.0
"""Seconds without a byte. A comment comes after 15 s."""
_REFUSALS: Final = {
    401: "requires a token; give its file with --token-file",
    403: "refuses the token; give the right one with --token-file",
    404: "has no live state; add the exporter live to a pipeline of this collector",
    421: "does not serve this host name; add the name to allowed_hosts of its extension api",
}
_CLOCKS_AGREE: Final = 2000.0
"""The header `Date` has whole seconds: a smaller difference is none."""


class OtherSchema(DecodeError):
    """A live state has another version. The message is a sentence that says which side is older."""


class LiveStreamSource(WatchSource):
    """Follows `/api/live/stream`. Comes back after a lost connection."""

    def __init__(self, url: str, token_file: Path | None = None, ca_file: Path | None = None) -> None:
        """`url` is that of the api extension, such as `http://localhost:9095`."""
        base = url.rstrip("/")
        for end in ("/stream", "/api/live"):
            base = base.removesuffix(end)
        shown = shown_url(base)
        super().__init__(shown.partition("://")[2] or shown)
        self.trouble = f"Connecting to {shown}."
        self._url = f"{base}/api/live/stream"
        self._shown = shown
        self._token_file = token_file
        self._ca_file = ca_file
        self._state: dict[str, Any] | None = None
        self._last_id = ""
        self._offset_ms = 0.0
        self._wait = ReconnectWait()

    def state(self) -> dict[str, Any] | None:
        return self._state

    def now_ms(self) -> float:
        return super().now_ms() + self._offset_ms

    async def run(self, *, once: bool = False) -> None:
        import httpx  # 0.2 s, which `--help` does not need

        timeout = httpx.Timeout(_CONNECT, read=_SILENCE)
        async with httpx.AsyncClient(verify=_authorities(self._ca_file), timeout=timeout) as client:
            while True:
                try:
                    await self._follow(client, once=once)
                    reason = "the connection was closed"
                except (httpx.HTTPError, httpx.InvalidURL, OSError) as error:
                    reason = _cause(error)
                except DecodeError as error:
                    self._last_id, reason = "", str(error)
                if once and self._state is not None:
                    return
                if self._state is None:
                    raise CannotStart(f"no live state from {self._shown}: {reason}; {_ADVICE}")
                wait = self._wait.take()
                self.trouble = f"No connection to {self._shown}: {reason}. Next attempt in {wait:.0f} s."
                await asyncio.sleep(wait)

    async def _follow(self, client: "httpx.AsyncClient", *, once: bool) -> None:
        async with client.stream("GET", self._url, headers=self._headers()) as response:
            if response.status_code != 200:
                self._refused(response.status_code)
            if not response.headers.get("content-type", "").startswith("text/event-stream"):
                raise DecodeError("the answer is no stream of events")
            self._offset_ms = _clock_offset(response.headers)
            parser = EventParser()
            async for piece in response.aiter_bytes():
                for event in parser.feed(piece):
                    self._take(event)
                    if once and self._state is not None:
                        return

    def _headers(self) -> dict[str, str]:
        headers = {"accept": "text/event-stream", "accept-encoding": "identity"}
        if self._last_id:
            headers["last-event-id"] = self._last_id
        if self._token_file is not None:
            headers["authorization"] = f"Bearer {token_of(self._token_file)}"
        return headers

    def _refused(self, status: int) -> None:
        reason = _REFUSALS.get(status)
        if reason and self._state is None:
            raise CannotStart(f"{self._shown} {reason}")
        raise DecodeError(f"the answer has the status {status}")

    def _take(self, event: ServerSentEvent) -> None:
        """Takes a state or a delta. Raises `DecodeError`; then the next connection begins with a whole state."""
        try:
            value = json.loads(event.data)
            if event.type == "state":
                self._state = checked_state(value, f"the collector {self._shown}")
            elif event.type == "delta" and self._state is not None:
                apply_delta(self._state, value)
            else:
                return
        except OtherSchema as error:
            if self._state is None:
                raise CannotStart(str(error)) from error
            raise
        except (ValueError, KeyError, TypeError, AttributeError, IndexError, RecursionError) as error:
            raise DecodeError("an event cannot be read") from error
        self._last_id = event.id if event.id.isascii() else ""  # else no header can have it
        self.trouble = ""
        self._wait.reset()


_ADVICE: Final = "is it the endpoint of an api extension? examples/live.yaml has a configuration"


def checked_state(value: Any, source: str, renewal: str = "update the collector") -> dict[str, Any]:
    """The value, if it has the form of a live state. Raises `ValueError`, and `OtherSchema` for another version.

    `source` is the subject of that sentence, and `renewal` the advice for an older source.
    """
    if not isinstance(value, dict) or type(version := value.get("schema")) is not int:
        raise ValueError("no live state")
    versions = f"its live state has version {version}, and this program reads version {SCHEMA}"
    if version < SCHEMA:
        raise OtherSchema(f"{source} is older than this program: {versions}; {renewal}")
    if version > SCHEMA:
        raise OtherSchema(f"{source} is newer than this program: {versions}; update this program")
    if not all(isinstance(value.get(name), dict) for name in _TABLES):
        raise ValueError("no live state")
    return value


def token_of(path: Path) -> str:
    """The token in a file. Raises `CannotStart`."""
    try:
        token = path.read_text("utf-8").strip()
    except (OSError, UnicodeDecodeError) as error:
        reason = error.strerror if isinstance(error, OSError) else "it is no text"
        raise CannotStart(f"cannot read the token file {path}: {reason}") from error
    if not token or not token.isascii() or not token.isprintable():
        raise CannotStart(f"the token file {path} has no token: one line of ASCII is expected")
    return token


def _authorities(ca_file: Path | None) -> ssl.SSLContext | bool:
    if ca_file is None:
        return True
    try:
        return ssl.create_default_context(cafile=str(ca_file))
    except OSError as error:
        raise CannotStart(f"cannot read the certificates in {ca_file}: {one_line(error)}") from error


def _clock_offset(headers: Mapping[str, str]) -> float:
    """How far the server's clock is ahead of ours, ms; 0 if they agree within the resolution of the header."""
    try:
        offset = parsedate_to_datetime(headers["date"]).timestamp() * 1000 - time.time() * 1000
    except (KeyError, ValueError, TypeError, OverflowError):
        return 0.0
    return offset if abs(offset) > _CLOCKS_AGREE else 0.0


def _cause(error: BaseException) -> str:
    """The words of the operating system, which libraries wrap in their own; else theirs."""
    seen: set[int] = set()
    rest: list[BaseException | None] = [error]
    while rest:
        cause = rest.pop()
        if cause is None or id(cause) in seen:
            continue
        seen.add(id(cause))
        if isinstance(cause, OSError) and cause.errno in _CLEAR:
            return os.strerror(cause.errno).lower()
        rest += [
            cause.__cause__,
            cause.__context__,
            *(cause.exceptions if isinstance(cause, BaseExceptionGroup) else ()),
        ]
    return visible(without_secrets(one_line(error))).rstrip(".") or type(error).__name__


_CLEAR: Final = (errno.ECONNREFUSED, errno.ECONNRESET, errno.EHOSTUNREACH, errno.ENETUNREACH, errno.ETIMEDOUT)
