"""The JSON of all workers, in pieces: 10,000 workers have some MB, and heartbeats have to be answered meanwhile."""

import asyncio
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Final

from otel_zernel.clock import Clock
from otel_zernel_receivers.heartbeat.fleet.fleet import Fleet
from otel_zernel_receivers.heartbeat.fleet.worker import Worker

_FRESH: Final = 0.05
"""Seconds for which a piece is served although one of its workers has changed."""
_PIECE: Final = 1000
"""Workers in a piece. It takes 0.5 ms, or 1.5 ms in the list."""


@dataclass(frozen=True, slots=True)
class _Piece:
    body: bytes
    sequence: int
    """The last change of the fleet before."""
    made: float


class AllWorkers:
    """One JSON body with all workers. Its pieces are kept for a moment, for many readers at once."""

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
        self._pieces: dict[int, _Piece] = {}
        """By the position of their first worker."""
        self._membership = fleet.membership

    def pieces(self) -> Iterator[bytes]:
        """All workers in order of their arrival. The fleet may change between two pieces."""
        each = self._each()
        yield self._brackets[:1]
        for number, piece in enumerate(each):
            yield b"," + piece.body if number else piece.body
        yield self._brackets[1:]

    async def numbered(self) -> tuple[bytes, int]:
        """The whole body, and the number of the last change before it. Other tasks have turns between its pieces."""
        bodies, sequence = [], self._fleet.changes.sequence
        for piece in self._each():
            bodies.append(piece.body)
            sequence = min(sequence, piece.sequence)
            await asyncio.sleep(0)
        body = self._brackets[:1] + b",".join(bodies) + self._brackets[1:]
        await asyncio.sleep(0)
        return body, sequence

    def _each(self) -> Iterator[_Piece]:
        workers, membership = list(self._fleet.workers.values()), self._fleet.membership
        starts = range(0, len(workers), _PIECE)
        return (self._piece(start, workers[start : start + _PIECE], membership) for start in starts)

    def _piece(self, start: int, workers: list[Worker], membership: int) -> _Piece:
        now, sequence = self._clock.monotonic(), self._fleet.changes.sequence
        if self._membership != self._fleet.membership:
            self._membership, self._pieces = self._fleet.membership, {}
        if membership != self._membership:  # the positions are those of an earlier fleet
            return self._made(workers, sequence, now)
        kept = self._pieces.get(start)
        is_current = kept and (now - kept.made < _FRESH or (self._lasts and kept.sequence == sequence))
        if kept is None or not is_current:
            kept = self._pieces[start] = self._made(workers, sequence, now)
        return kept

    def _made(self, workers: list[Worker], sequence: int, now: float) -> _Piece:
        return _Piece(b",".join(map(self._encode, workers)), sequence, now)


def all_telemetry(fleet: Fleet, clock: Clock) -> AllWorkers:
    """The body of `/telemetry`: an object by id."""
    return AllWorkers(fleet, clock, encode=lambda worker: worker.entry, brackets=b"{}", lasts=True)


def all_listed(fleet: Fleet, clock: Clock) -> AllWorkers:
    """The body of `/workers`: a list of registrations and states, which change without a note if a stream ends."""
    return AllWorkers(fleet, clock, encode=lambda worker: worker.listed, brackets=b"[]", lasts=False)
