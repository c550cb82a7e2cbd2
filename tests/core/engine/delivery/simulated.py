"""Simulated time, and a backend in it: ten minutes pass in a moment."""

import asyncio
import heapq
from collections.abc import Callable
from dataclasses import dataclass, field
from itertools import count
from typing import Any

from otel_zernel.batch import Batch
from otel_zernel.component import Context
from otel_zernel.errors import Retryable
from tests.core.parts import Sink, SinkConfig


@dataclass
class SimulatedClock:
    """A clock that only `run_until` moves. Sleepers wake in the order of their times."""

    now: float = 0.0
    _sleepers: list[tuple[float, int, asyncio.Future[None]]] = field(default_factory=list)
    _numbers: Any = field(default_factory=count)

    def monotonic(self) -> float:
        return self.now

    def time_ns(self) -> int:
        return 1_700_000_000_000_000_000 + round(self.now * 1e9)

    async def sleep(self, seconds: float) -> None:
        woken = asyncio.get_running_loop().create_future()
        heapq.heappush(self._sleepers, (self.now + max(0.0, seconds), next(self._numbers), woken))
        await woken

    async def run_until(self, time: float) -> None:
        """Wakes everybody who sleeps until then, and lets each do its work at its time."""
        await _settle()
        while self._sleepers and self._sleepers[0][0] <= time:
            self.now, _, woken = heapq.heappop(self._sleepers)
            if not woken.done():
                woken.set_result(None)
            await _settle()
        self.now = time


async def _settle() -> None:
    for _ in range(30):  # enough for a chain of tasks from a timer to the exporter
        await asyncio.sleep(0)


async def eventually(clock: SimulatedClock, condition: Callable[[], object], *, before: float) -> None:
    """Lets simulated time pass until the condition holds. Threads get real time for their work."""
    while not condition():
        assert clock.now < before, "the condition did not come true"
        await clock.run_until(clock.now + 1)
        await asyncio.sleep(0.001)


Answer = Callable[[], Retryable | None]


class SimulatedBackend(Sink):
    """Answers with `fault` until the simulated time `repaired`, after `latency` seconds each."""

    fault: Answer
    repaired = 600.0
    latency = 0.01

    def __init__(self, config: SinkConfig, context: Context) -> None:
        super().__init__(config, context)
        self.times: list[float] = []

    async def export(self, batch: Batch) -> None:
        clock = self.context.clock
        self.times.append(clock.monotonic())
        await clock.sleep(self.latency)
        if clock.monotonic() < self.repaired and (error := self.fault()):
            raise error
        self.batches.append(batch)
