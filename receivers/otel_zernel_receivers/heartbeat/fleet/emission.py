"""Emits the workers' metrics, a few at a time: heartbeats have to be answered meanwhile."""

from collections.abc import Callable, Iterator
from typing import Final

from otel_zernel.batch import Batch
from otel_zernel.clock import Clock
from otel_zernel.component import Emit
from otel_zernel.errors import Refused, Rejected
from otel_zernel_receivers.heartbeat.fleet.fleet import Fleet
from otel_zernel_receivers.heartbeat.fleet.points import WorkerPoints, batch_of, ends_of, points_of

_AT_ONCE: Final = 10
"""Workers that are encoded in one turn of the event loop. Each takes 40 us."""
_BATCH: Final = 200
"""Workers in one batch."""


class Emission:
    """Turns the waiting heartbeats into batches."""

    def __init__(self, fleet: Fleet, clock: Clock, drop: Callable[[int, str], None]) -> None:
        self._fleet = fleet
        self._clock = clock
        self._drop = drop

    async def emit(self, emit: Emit) -> None:
        """Emits every worker once. A batch that the pipelines refuse is dropped and counted."""
        waiting: list[WorkerPoints] = []
        for number, points in enumerate(self._points(), 1):
            waiting.append(points)
            if len(waiting) == _BATCH:
                await self._send(emit, batch_of(waiting))
                waiting = []
            elif number % _AT_ONCE == 0:
                await self._clock.sleep(0)
        if waiting:
            await self._send(emit, batch_of(waiting))

    def _points(self) -> Iterator[WorkerPoints]:
        forgotten, self._fleet.forgotten = self._fleet.forgotten, []
        for worker in forgotten:
            yield ends_of(worker, self._clock.time_ns())
        for worker in list(self._fleet.workers.values()):
            yield points_of(worker, self._clock.time_ns())
            worker.samples.clear()
            worker.stale = False

    async def _send(self, emit: Emit, batch: Batch) -> None:
        try:
            await emit(batch, transport="grpc")
        except (Refused, Rejected):
            self._drop(batch.point_count, "refused")
