"""The WebSockets: the whole state on connecting, then the changes since the last message."""

import asyncio
import contextlib
from collections import OrderedDict
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from sys import getsizeof
from typing import Any, Final

from otel_zernel.clock import Clock
from otel_zernel.runtime.tasks import run_until
from otel_zernel_libraries.serving.api.answers import ApiError, client_gone, query_of
from otel_zernel_receivers.heartbeat.fleet.fleet import Fleet
from otel_zernel_receivers.heartbeat.http.body import AllWorkers


@dataclass(eq=False)
class _Held:
    size: int
    """Bytes of the text, which is the same object for all its clients."""
    timeouts: set[asyncio.Timeout] = field(default_factory=set)
    """One for each client that takes the text."""


class HeldTexts:
    """Counts the texts that clients take. Beyond the bound, the clients with the oldest texts are out of time."""

    def __init__(self, most: int) -> None:
        """`most` is in bytes. A single text may be larger."""
        self._most = most
        self._held: dict[int, _Held] = {}
        """By the identity of the text, the oldest first."""
        self.size = 0
        """Bytes of all texts."""

    @contextmanager
    def until_taken(self, text: str, timeout: asyncio.Timeout) -> Iterator[None]:
        """Counts the text while a client takes it. `timeout` surrounds this block, and ends it early for room."""
        held = self._held.get(id(text))
        if held is None:
            held = self._held[id(text)] = _Held(getsizeof(text))
            self.size += held.size
        held.timeouts.add(timeout)
        self._make_room(held)
        try:
            yield
        finally:
            held.timeouts.remove(timeout)
            if not held.timeouts:
                del self._held[id(text)]
                self.size -= held.size

    def _make_room(self, newest: _Held) -> None:
        beyond = self.size - self._most
        for held in self._held.values():
            if beyond <= 0:
                return
            if held is not newest:
                beyond -= held.size
                for timeout in held.timeouts:
                    if not timeout.expired():
                        timeout.reschedule(0)


_PATIENCE: Final = 30.0
"""Seconds in which a client takes a message. Then it is disconnected."""
_TEXTS: Final = 8
"""Messages that are remembered for further clients."""
_MOST_MADE: Final = 32 << 20
"""Bytes of changes that are remembered for further clients."""
_MOST_HELD: Final = 64 << 20
"""Bytes of the different messages that all clients together have not taken yet."""
_TOO_SLOW: Final = 1013
"""The close code "try again later"."""


class WorkerFeed:
    """Sends changes to all clients, at most one message in `push_interval`. A slow client skips messages."""

    def __init__(
        self,
        fleet: Fleet,
        everything: AllWorkers,
        clock: Clock,
        *,
        push_interval: float,
        max_clients: int,
        drop: Callable[[int, str], None],
        count_clients: Callable[[int], None],
        patience: float = _PATIENCE,
        most_held: int = _MOST_HELD,
    ) -> None:
        self._fleet = fleet
        self._everything = everything
        self._clock = clock
        self._push_interval = push_interval
        self._max_clients = max_clients
        self._drop = drop
        self._count_clients = count_clients
        self._patience = patience
        self._clients = 0
        self.sequence = fleet.changes.sequence
        """The change up to which messages are made now."""
        self._ticked = asyncio.Event()
        self._texts: OrderedDict[tuple[int, bool, bool, int], str] = OrderedDict()
        """The last messages by number, kind and size: clients that read nothing hold the same text."""
        self._made: OrderedDict[int, bytes | None] = OrderedDict()
        """The changes up to `sequence`, by the number after which they begin, the latest used last. Most clients need
        the same."""
        self.held = HeldTexts(most_held)
        """The messages that clients have not taken yet."""

    async def run(self) -> None:
        """Lets the clients send at the interval, until cancelled."""
        while True:
            await self._clock.sleep(self._push_interval)
            self.tick()

    def tick(self) -> None:
        """Lets the clients send the changes."""
        if self.sequence != self._fleet.changes.sequence:
            self.sequence, self._made = self._fleet.changes.sequence, OrderedDict()
            ticked, self._ticked = self._ticked, asyncio.Event()
            ticked.set()

    async def serve(self, scope: Any, receive: Any, send: Any) -> None:
        """One client, as an ASGI application. The path may name a worker."""
        if self._clients >= self._max_clients:
            raise ApiError(503, f"max_clients ({self._max_clients}) clients listen; try again later")
        query = query_of(scope)
        client = _Client(self, send, scope["path_params"].get("id"), numbered=query.get("sequence") == "true")
        since = query.get("since", "")
        self._clients += 1
        self._count_clients(1)
        try:
            await receive()  # websocket.connect
            await send({"type": "websocket.accept"})
            number = int(since) if since.isdecimal() and len(since) < 20 else None
            await run_until(client.run(number), client_gone(receive), "worker feed")
        finally:
            self._clients -= 1
            self._count_clients(-1)

    async def next_after(self, sequence: int) -> int:
        """Waits until there is a later change. The result is the number of the last one."""
        while self.sequence <= sequence:
            await self._ticked.wait()
        return self.sequence

    async def all_now(self) -> tuple[bytes, int]:
        """The whole state, and its number."""
        return await self._everything.numbered()

    def since(self, sequence: int) -> bytes | None:
        """The changes after this number. None if they are not all remembered."""
        ids = self._fleet.changes.since(sequence)
        return None if ids is None else self._fleet.some_json(ids)

    def since_for_many(self, sequence: int) -> bytes | None:
        """The same, made once for all clients that have seen the same."""
        if sequence not in self._made:
            self._made[sequence] = self.since(sequence)
            size = sum(len(workers or b"") for workers in self._made.values())
            while size > _MOST_MADE and len(self._made) > 1:
                size -= len(self._made.popitem(last=False)[1] or b"")
        self._made.move_to_end(sequence)
        return self._made[sequence]

    def one(self, worker_id: str) -> tuple[bytes, int]:
        """The worker by its id, null if there is none, and the number of its last change."""
        return self._fleet.some_json([worker_id]), self._fleet.changes.last(worker_id)

    def text_of(self, workers: bytes, sequence: int, *, full: bool, numbered: bool) -> str:
        """The message to a client, the same object for all that get the same."""
        key = sequence, full, numbered, hash(workers)
        if key not in self._texts:
            text = workers
            if numbered:
                text = b'{"seq":%d,"full":%s,"workers":%s}' % (sequence, b"true" if full else b"false", workers)
            self._texts[key] = text.decode()
            if len(self._texts) > _TEXTS:
                self._texts.popitem(last=False)
        return self._texts[key]

    async def send(self, send: Any, text: str) -> bool:
        """Whether the client has taken the message in time."""
        try:
            async with asyncio.timeout(self._patience) as timeout:
                with self.held.until_taken(text, timeout):
                    await send({"type": "websocket.send", "text": text})
        except TimeoutError:
            self._drop(1, "slow_client")
            return False
        return True


class _Client:
    """What one WebSocket has seen."""

    def __init__(self, feed: WorkerFeed, send: Any, worker_id: str | None, *, numbered: bool) -> None:
        self._feed = feed
        self._send = send
        self._worker_id = worker_id
        self._numbered = numbered
        """Whether messages carry the number of their last change."""

    async def run(self, since: int | None) -> None:
        """Sends until the client is too slow."""
        sequence = await self._begin(since)
        while sequence is not None:
            before, sequence = sequence, await self._feed.next_after(sequence)
            sequence = await self._send_changes(before, sequence)
        with contextlib.suppress(Exception):
            async with asyncio.timeout(1):
                await self._send({"type": "websocket.close", "code": _TOO_SLOW, "reason": "messages are not read"})

    async def _begin(self, since: int | None) -> int | None:
        """The whole state, or the changes that a client has missed which comes again."""
        if self._worker_id is not None:
            worker, number = self._feed.one(self._worker_id)
            return await self._sent(self._text(worker, number, full=True), number)
        if since is not None:
            number = max(since, self._feed.sequence)
            if (text := self._changes(self._feed.since(since), number)) is not None:
                return await self._sent(text, number)
        return await self._sent(*await self._all())

    async def _send_changes(self, before: int, now: int) -> int | None:
        if self._worker_id is not None:
            worker, number = self._feed.one(self._worker_id)
            return await self._sent(self._text(worker, now, full=False), now) if number > before else now
        if (text := self._changes(self._feed.since_for_many(before), now)) is not None:
            return await self._sent(text, now)
        return await self._sent(*await self._all())

    async def _all(self) -> tuple[str, int]:
        workers, number = await self._feed.all_now()
        return self._text(workers, number, full=True), number

    def _changes(self, workers: bytes | None, now: int) -> str | None:
        return None if workers is None else self._text(workers, now, full=False)

    def _text(self, workers: bytes, sequence: int, *, full: bool) -> str:
        return self._feed.text_of(workers, sequence, full=full, numbered=self._numbered)

    async def _sent(self, text: str, sequence: int) -> int | None:
        """The sequence number if the client has taken the message. Callers keep no other copy meanwhile."""
        return sequence if await self._feed.send(self._send, text) else None
