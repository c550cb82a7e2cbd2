"""The JSON of all workers. 10,000 have some MB, joined in pieces: heartbeats have to be answered meanwhile."""

import asyncio
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Final

from otel_zernel.clock import Clock
from otel_zernel_receivers.heartbeat.fleet.fleet import Fleet
from otel_zernel_receivers.heartbeat.fleet.worker import Worker

_FRESH: Final = 0.1
"""Seconds for which a body is served although a worker has changed."""
_AHEAD: Final = 0.05
"""Seconds after which a body is renewed while clients ask: no client waits for it."""
_INTEREST: Final = 1.0
"""Seconds after a request in which another one is expected."""
_PIECE: Final = 1000
"""Workers that are joined in one turn of the event loop: 0.2 ms, or 1.5 ms in the list."""
_PART: Final = 4 << 20
"""Bytes of a body that are sent by one call: the rest of the writing takes no turns."""


@dataclass(frozen=True, slots=True)
class WorkersBody:
    """All workers at one moment."""

    parts: Sequence[bytes]
    """The JSON."""
    sequence: int
    """The last change of the fleet before."""
    made: float
    """On the monotonic clock, in s."""

    @property
    def size(self) -> int:
        """Bytes of the JSON."""
        return sum(map(len, self.parts))


class AllWorkers:
    """One JSON body with all workers, made once for many readers."""

    def __init__(
        self, fleet: Fleet, clock: Clock, *, encode: Callable[[Worker], bytes], brackets: bytes, lasts: bool
    ) -> None:
        """`encode` returns the JSON of a worker. `brackets` has the first and the last byte of the body.

        `lasts` is whether the JSON stays the same until the fleet notes a change.
        """
        self._fleet = fleet
        self._clock = clock
        self._encode = encode
        self._brackets = brackets
        self._lasts = lasts
        self._kept: WorkersBody | None = None
        self._making = asyncio.Lock()
        self._asked_at = 0.0
        self._asked = asyncio.Event()

    async def run(self) -> None:
        """Renews the body while clients ask for it, and forgets it when nobody does any more. Runs until cancelled."""
        while True:
            await self._asked.wait()
            while self._clock.monotonic() - self._asked_at < _INTEREST:
                await self._clock.sleep(_AHEAD)
                await self._renewed(_AHEAD)
            self._asked.clear()
            self._kept = None

    async def body(self) -> WorkersBody:
        """The whole body, at most `_FRESH` old. Other tasks have turns while it is made."""
        self._asked_at = self._clock.monotonic()
        self._asked.set()
        return await self._renewed(_FRESH)

    async def numbered(self) -> tuple[bytes, int]:
        """The whole body, and the number of the last change before it."""
        body = await self.body()
        return b"".join(body.parts), body.sequence

    def tag(self, body: WorkersBody) -> bytes:
        """The entity tag of a body; empty if its JSON may change without a note."""
        return b'"%d"' % body.sequence if self._lasts else b""

    def pieces(self) -> Iterator[bytes]:
        """The body, in order of the workers' arrival. The fleet may change between two pieces."""
        workers = list(self._fleet.workers.values())
        yield self._brackets[:1]
        for start in range(0, len(workers), _PIECE):
            entries = map(self._encode, workers[start : start + _PIECE])
            yield b",".join((b"", *entries) if start else entries)
        yield self._brackets[1:]

    async def _renewed(self, age: float) -> WorkersBody:
        """The kept body if it is not older, or nothing has changed since; else a new one."""
        if (kept := self._kept) and self._is_current(kept, age):
            return kept
        async with self._making:
            if (kept := self._kept) and self._is_current(kept, age):  # another reader has made it
                return kept
            made, sequence, pieces = self._clock.monotonic(), self._fleet.changes.sequence, list[bytes]()
            for piece in self.pieces():
                pieces.append(piece)
                await asyncio.sleep(0)
            self._kept = WorkersBody(tuple(_joined(pieces)), sequence, made)
            return self._kept

    def _is_current(self, body: WorkersBody, age: float) -> bool:
        is_same = self._lasts and body.sequence == self._fleet.changes.sequence
        return is_same or self._clock.monotonic() - body.made < age


def _joined(pieces: Iterable[bytes]) -> Iterator[bytes]:
    """The pieces in parts of about `_PART` bytes."""
    held, size = list[bytes](), 0
    for piece in pieces:
        held.append(piece)
        size += len(piece)
        if size >= _PART:
            yield b"".join(held)
            held, size = [], 0
    yield b"".join(held)


def all_telemetry(fleet: Fleet, clock: Clock) -> AllWorkers:
    """The body of `/telemetry`: an object by id."""
    return AllWorkers(fleet, clock, encode=lambda worker: worker.entry, brackets=b"{}", lasts=True)


def all_listed(fleet: Fleet, clock: Clock) -> AllWorkers:
    """The body of `/workers`: a list of registrations and states, which change without a note if a stream ends."""
    return AllWorkers(fleet, clock, encode=lambda worker: worker.listed, brackets=b"[]", lasts=False)
