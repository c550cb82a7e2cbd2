"""The JSON of all workers, in pieces: 10,000 workers have some MB, and heartbeats have to be answered meanwhile."""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final

from otel_zernel.clock import Clock
from otel_zernel_receivers.heartbeat.fleet.fleet import Fleet
from otel_zernel_receivers.heartbeat.fleet.worker import Worker

_FRESH: Final = 0.05
"""Seconds for which a piece is served although one of its workers has changed."""
_PIECE: Final = 500
"""Workers in a piece, which takes 0.5 ms."""


@dataclass(frozen=True, slots=True)
class _Piece:
    body: bytes
    sequence: int
    """The last change of the fleet before."""
    made: float


class AllWorkers:
    """The body of `/telemetry`. Its pieces are kept for a moment, for many readers at once."""

    def __init__(self, fleet: Fleet, clock: Clock) -> None:
        self._fleet = fleet
        self._clock = clock
        self._pieces: dict[int, _Piece] = {}
        """By the position of their first worker."""
        self._membership = fleet.membership

    def pieces(self) -> Iterator[bytes]:
        """All workers by id. The fleet may change between two pieces."""
        workers, membership = list(self._fleet.workers.values()), self._fleet.membership
        yield b"{"
        for start in range(0, len(workers), _PIECE):
            piece = self._piece(start, workers[start : start + _PIECE], membership)
            yield b"," + piece if start else piece
        yield b"}"

    def numbered(self) -> tuple[bytes, int]:
        """The whole body, and the number of the last change before it."""
        pieces = b"".join(self.pieces())
        return pieces, min((one.sequence for one in self._pieces.values()), default=self._fleet.changes.sequence)

    def _piece(self, start: int, workers: list[Worker], membership: int) -> bytes:
        now, sequence = self._clock.monotonic(), self._fleet.changes.sequence
        if self._membership != self._fleet.membership:
            self._membership, self._pieces = self._fleet.membership, {}
        if membership != self._membership:  # the positions are those of an earlier fleet
            return _joined(workers)
        kept = self._pieces.get(start)
        if kept is None or (kept.sequence != sequence and now - kept.made >= _FRESH):
            kept = self._pieces[start] = _Piece(_joined(workers), sequence, now)
        return kept.body


def _joined(workers: list[Worker]) -> bytes:
    return b",".join([worker.entry for worker in workers])
