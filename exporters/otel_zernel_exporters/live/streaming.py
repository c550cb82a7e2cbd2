"""Sends the state and its deltas to any number of readers: each is encoded once for all."""

from collections.abc import Awaitable, Callable
from typing import Any, Final

from otel_zernel.clock import Clock
from otel_zernel.runtime.threads import run_in_thread
from otel_zernel_exporters.live.live_state import LiveState
from otel_zernel_libraries.serving.api.answers import error_answer
from otel_zernel_libraries.serving.readers import Reader, Readers

_KEPT: Final = 60.0
"""Seconds for which deltas are made after the last reader has left, so that it can come back."""
_SILENCE: Final = 15.0
"""Seconds after which a comment is sent, so that no proxy closes the connection."""
_COMMENT: Final = b": alive\n\n"
_HEADERS: Final = [
    (b"content-type", b"text/event-stream"),
    (b"cache-control", b"no-store"),
    (b"x-accel-buffering", b"no"),
]


class LiveStream:
    """The readers of the stream."""

    def __init__(
        self,
        state: LiveState,
        collector: Callable[[], dict[str, Any]],
        clock: Clock,
        *,
        push_interval: float,
        max_clients: int,
        slow: Callable[[], None],
        failed: Callable[[Exception], None],
    ) -> None:
        """`collector` returns the state of the collector itself. `slow` is
        called for each reader that is dropped because it reads too slowly, `failed` for each push that has failed."""
        self._state = state
        self._collector = collector
        self._clock = clock
        self._interval = push_interval
        self._max_clients = max_clients
        self._slow = slow
        self._failed = failed
        self.readers = Readers(clock, slow)
        self._pushed = state.published.seq
        """The number of the state that readers were woken for."""
        self._comments = 0
        self._spoke = clock.monotonic()
        self._left = -_KEPT

    async def run(self) -> None:
        """Makes deltas while there are readers."""
        while True:
            if not self.readers and self._clock.monotonic() - self._left > _KEPT:
                await run_in_thread(self._state.forget, self._state.executor)
                await self.readers.some.wait()
            await self._clock.sleep(self._interval)
            try:
                await self.push()
            except Exception as error:  # noqa: BLE001  # a bug must not end the stream without a word
                self._failed(error)

    async def push(self) -> None:
        """Makes a delta of the changes, and wakes the readers."""
        collector = self._collector()
        published = await run_in_thread(lambda: self._state.advance(collector), self._state.executor)
        now = self._clock.monotonic()
        if published.seq != self._pushed:
            self._spoke = now
            self._pushed = published.seq
        elif now - self._spoke >= _SILENCE:
            self._spoke, self._comments = now, self._comments + 1
        else:
            return
        await self.readers.wake()

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
        reader = Reader()
        sending = self._send_all(reader, _last_event(scope), send)
        try:
            await self.readers.serve(reader, sending, receive, "live stream")
        finally:
            self._left = self._clock.monotonic()

    async def _send_all(self, reader: Reader, last: int | None, send: Any) -> None:
        """Sends until the reader is too far behind."""

        async def part(body: bytes, *, more: bool = True) -> None:
            await self.readers.send(reader, send, {"type": "http.response.body", "body": body, "more_body": more})

        await send({"type": "http.response.start", "status": 200, "headers": _HEADERS})
        await part(b"retry: 1000\n\n")
        comments = self._comments
        if last is not None and self._state.published.since(last) is not None:
            seq = last
        else:
            seq = await self._send_state(part)
        while (events := self._state.published.since(seq)) is not None:
            for seq, event in events:  # noqa: B007  # the reader has this state from now on
                await part(event)
            if comments != self._comments:
                comments = self._comments
                await part(_COMMENT)
            elif not events:
                await reader.wake.wait()
                reader.wake.clear()
        self._slow()
        await part(b"", more=False)

    async def _send_state(self, part: Callable[[bytes], Awaitable[None]]) -> int:
        """Sends the whole state, and returns its number."""
        seq, pieces = await self._whole_state()
        await part(f"id: {seq}\nevent: state\ndata: ".encode())
        for piece in pieces:
            await part(piece)
        await part(b"\n\n")
        return seq

    async def _whole_state(self) -> tuple[int, list[bytes]]:
        """The number and the JSON of the state of now, or of a moment ago."""
        collector = self._collector()
        return await run_in_thread(lambda: self._state.encoded(collector), self._state.executor)


def _last_event(scope: Any) -> int | None:
    """The number in the header `Last-Event-ID`, or in the query, for clients that cannot set headers."""
    for name, value in scope["headers"]:
        if name == b"last-event-id" and value.isdigit() and len(value) <= 20:
            return int(value)
    return None
