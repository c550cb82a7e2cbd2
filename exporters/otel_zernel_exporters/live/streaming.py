"""Sends the state and its deltas to any number of readers: each is encoded once for all."""

import asyncio
from collections import deque
from collections.abc import Awaitable, Callable, Iterator
from typing import Any, Final

from otel_zernel.clock import Clock
from otel_zernel.runtime.tasks import run_until
from otel_zernel.runtime.turns import Turns
from otel_zernel_exporters.live.encoding import delta_event, state_pieces
from otel_zernel_exporters.live.live_state import LiveState
from otel_zernel_libraries.serving.api.answers import client_gone, error_answer

_KEPT: Final = 60.0
"""Seconds for which deltas are made after the last reader has left, so that it can come back."""
_MOST_BYTES: Final = 16 << 20
"""Bytes of encoded deltas for readers that are behind or come back. At least the last one is kept."""
_FRESH: Final = 0.1
"""Seconds for which an encoded state serves further readers."""
_SILENCE: Final = 15.0
"""Seconds after which a comment is sent, so that no proxy closes the connection."""
_GROUP: Final = 100
"""Readers that are woken at once. Sending to 100 takes about 3 ms."""
_STALLED: Final = 5.0
"""Seconds. A reader that leaves while it has read nothing for so long counts as slow."""
_COMMENT: Final = b": alive\n\n"
_HEADERS: Final = [
    (b"content-type", b"text/event-stream"),
    (b"cache-control", b"no-store"),
    (b"x-accel-buffering", b"no"),
]


class StreamReader:
    """One reader of the stream."""

    def __init__(self) -> None:
        self.wake = asyncio.Event()
        self.seq = 0
        """The number of the state that the reader has."""
        self.comments = 0
        self.sends_since: float | None = None
        """The time (monotonic, s) since which a send waits for the reader."""


class LiveStream:
    """The readers of the stream, and the last deltas in the form of events."""

    def __init__(
        self,
        state: LiveState,
        turns: Turns,
        clock: Clock,
        *,
        push_interval: float,
        max_clients: int,
        slow: Callable[[], None],
        failed: Callable[[Exception], None],
    ) -> None:
        """`slow` is called for each reader that is dropped because it reads too slowly, `failed` for each push that
        has failed."""
        self._state = state
        self._turns = turns
        self._clock = clock
        self._interval = push_interval
        self._max_clients = max_clients
        self._slow = slow
        self._failed = failed
        self.readers: dict[StreamReader, None] = {}
        self._has_readers = asyncio.Event()
        self._events: deque[tuple[int, bytes]] = deque()
        """The last deltas by number, in order."""
        self._bytes = 0
        self._newest = state.seq
        """The number of the last delta that became an event."""
        self._comments = 0
        self._spoke = clock.monotonic()
        self._left = -_KEPT
        self._whole: tuple[int, list[bytes], float] | None = None
        """The last encoded state: its number, the pieces, and when it was made."""

    async def run(self) -> None:
        """Makes events while there are readers."""
        while True:
            if not self.readers and self._clock.monotonic() - self._left > _KEPT:
                self._forget()
                await self._has_readers.wait()
            await self._clock.sleep(self._interval)
            try:
                await self.push()
            except Exception as error:  # noqa: BLE001  # a bug must not end the stream without a word
                self._failed(error)
                self._state.begin_anew()

    async def push(self) -> None:
        """Makes events of the changes, and wakes the readers."""
        await self._turns.take(self._state.advancing)
        now = self._clock.monotonic()
        if self._whole and now - self._whole[2] > _FRESH:
            self._whole = None
        if await self._add_events():
            self._spoke = now
        elif now - self._spoke >= _SILENCE:
            self._spoke, self._comments = now, self._comments + 1
        else:
            return
        for position, reader in enumerate(list(self.readers), 1):
            reader.wake.set()
            if position % _GROUP == 0:
                await asyncio.sleep(0)

    async def answer_state(self, scope: Any, receive: Any, send: Any) -> None:
        """The application of `/api/live`."""
        _, pieces = await self._whole_state()
        length = str(sum(map(len, pieces))).encode()
        headers = [(b"content-type", b"application/json"), (b"cache-control", b"no-store"), (b"content-length", length)]
        await send({"type": "http.response.start", "status": 200, "headers": headers})
        for piece in pieces[:-1]:
            await send({"type": "http.response.body", "body": piece, "more_body": True})
        await send({"type": "http.response.body", "body": pieces[-1]})

    async def answer_stream(self, scope: Any, receive: Any, send: Any) -> None:
        """The application of `/api/live/stream`."""
        if len(self.readers) >= self._max_clients:
            sentence = f"{self._max_clients} clients read the stream already; raise max_clients, or close some of them"
            await error_answer(send, 503, sentence, [(b"retry-after", b"10")])
            return
        reader = StreamReader()
        self.readers[reader] = None
        self._has_readers.set()
        try:
            await self._serve(reader, _last_event(scope), receive, send)
        finally:
            self.readers.pop(reader, None)
            self._left = self._clock.monotonic()
            if not self.readers:
                self._has_readers.clear()

    async def _serve(self, reader: StreamReader, last: int | None, receive: Any, send: Any) -> None:
        if await run_until(self._send_all(reader, last, send), client_gone(receive), "live stream"):
            return
        if reader.sends_since and self._clock.monotonic() - reader.sends_since > _STALLED:
            self._slow()

    async def _send_all(self, reader: StreamReader, last: int | None, send: Any) -> None:
        """Sends until the reader is too far behind."""

        async def part(body: bytes, *, more: bool = True) -> None:
            reader.sends_since = self._clock.monotonic()
            await send({"type": "http.response.body", "body": body, "more_body": more})
            reader.sends_since = None

        await send({"type": "http.response.start", "status": 200, "headers": _HEADERS})
        await part(b"retry: 1000\n\n")
        reader.comments = self._comments
        if last is not None and self._after(last) is not None:
            reader.seq = last
        else:
            await self._send_state(reader, part)
        while (events := self._after(reader.seq)) is not None:
            for seq, event in events:
                reader.seq = seq
                await part(event)
            if reader.comments != self._comments:
                reader.comments = self._comments
                await part(_COMMENT)
            elif not events:
                await reader.wake.wait()
                reader.wake.clear()
        self._slow()
        await part(b"", more=False)

    async def _send_state(self, reader: StreamReader, part: Callable[[bytes], Awaitable[None]]) -> None:
        reader.seq, pieces = await self._whole_state()
        await part(f"id: {reader.seq}\nevent: state\ndata: ".encode())
        for piece in pieces:
            await part(piece)
        await part(b"\n\n")

    def _after(self, seq: int) -> list[tuple[int, bytes]] | None:
        """The events after the state with this number; None if they are not kept."""
        if seq >= self._newest:
            # A state that was read since the last push has a number of its own. Its deltas become events at the next.
            return [] if seq <= self._state.seq else None
        if not self._events or self._events[0][0] - 1 > seq:
            return None
        return [event for event in self._events if event[0] > seq]

    async def _whole_state(self) -> tuple[int, list[bytes]]:
        """The number and the JSON of the state of now, or of a moment ago."""
        if self._whole is None or self._clock.monotonic() - self._whole[2] > _FRESH:
            found: list[bytes] = []
            await self._turns.take(lambda: self._encode(found))
        assert self._whole is not None  # noqa: S101  # `_encode` has made it
        return self._whole[0], self._whole[1]

    def _encode(self, found: list[bytes]) -> Iterator[None]:
        if self._whole and self._clock.monotonic() - self._whole[2] <= _FRESH:
            return  # another reader was first
        yield from self._state.advancing()
        for piece in state_pieces(self._state):
            found.append(piece)
            yield
        if self._state.kept_since(self._newest) is None:
            self._forget()
        self._whole = self._state.seq, _joined(found), self._clock.monotonic()

    async def _add_events(self) -> bool:
        """Whether there are new events. If deltas are missing, all readers have to begin anew."""
        deltas = self._state.kept_since(self._newest)
        if deltas is None:
            self._forget()
            return True
        for delta in deltas:
            pieces: list[bytes] = []
            await self._turns.take(lambda delta=delta, pieces=pieces: _collect(delta, pieces))  # type: ignore[misc]
            event = b"".join(pieces)
            self._events.append((delta["seq"], event))
            self._newest = delta["seq"]
            self._bytes += len(event)
        while len(self._events) > 1 and self._bytes > _MOST_BYTES:
            self._bytes -= len(self._events.popleft()[1])
        return bool(deltas)

    def _forget(self) -> None:
        self._events.clear()
        self._bytes = 0
        self._newest = self._state.seq
        self._whole = None


def _collect(delta: dict[str, Any], pieces: list[bytes]) -> Iterator[None]:
    for piece in delta_event(delta):
        pieces.append(piece)
        yield


def _joined(pieces: list[bytes], size: int = 1 << 15) -> list[bytes]:
    """The same bytes in pieces of about 32 KiB: a connection buffers 64."""
    joined, held = [], bytearray()
    for piece in pieces:
        held += piece
        while len(held) >= size:
            joined.append(bytes(held[:size]))
            del held[:size]
    return [*joined, bytes(held)] if held or not joined else joined


def _last_event(scope: Any) -> int | None:
    """The number in the header `Last-Event-ID`, or in the query, for clients that cannot set headers."""
    for name, value in scope["headers"]:
        if name == b"last-event-id" and value.isdigit() and len(value) <= 20:
            return int(value)
    return None
