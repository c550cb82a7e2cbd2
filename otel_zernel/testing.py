"""Test doubles for components: a clock that stands still, a context, a downstream."""

import asyncio
import logging
import os
from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

from opentelemetry.metrics import Meter, NoOpMeter

from otel_zernel.batch import Batch
from otel_zernel.clock import Clock, SystemClock
from otel_zernel.component import Context, Extension, Kind
from otel_zernel.errors import Refused
from otel_zernel.health import Health


class FakeClock:
    """A clock that only `sleep` and `advance` move. `sleep` returns at once."""

    def __init__(self, time_ns: int = 1_700_000_000_000_000_000) -> None:
        self._start_ns = time_ns
        self._elapsed_ns = 0

    def time_ns(self) -> int:
        return self._start_ns + self._elapsed_ns

    def monotonic(self) -> float:
        return self._elapsed_ns / 1e9

    def advance(self, seconds: float) -> None:
        self._elapsed_ns += round(seconds * 1e9)

    async def sleep(self, seconds: float) -> None:
        self.advance(seconds)
        await asyncio.sleep(0)


class StandingClock(FakeClock):
    """Only `advance` moves it: a `sleep` never returns. For code that sleeps in a loop beside the tested one."""

    async def sleep(self, seconds: float) -> None:
        await asyncio.Event().wait()


class ImpatientClock(SystemClock):
    """The clock of the operating system, whose `sleep` returns after 50 ms at the latest."""

    async def sleep(self, seconds: float) -> None:
        await super().sleep(min(seconds, 0.05))


@dataclass
class Dropped:
    """The items that a component counted as lost, by reason."""

    counts: Counter[str] = field(default_factory=Counter)

    def __call__(self, count: int, reason: str) -> None:
        self.counts[reason] += count


def make_context(
    kind: Kind = "receivers",
    id_: str = "test",
    *,
    clock: Clock | None = None,
    meter: Meter | None = None,
    extensions: Mapping[str, Extension] | None = None,
) -> Context:
    """A context without side effects. `context.drop` is a `Dropped`."""
    logger = logging.LoggerAdapter(logging.getLogger(f"otel_zernel.{kind}"), {"otelcol.component.id": id_})
    meter = meter or NoOpMeter("test")
    return Context(kind, id_, logger, meter, clock or FakeClock(), Health(), Dropped(), extensions=extensions or {})


@dataclass
class Downstream:
    """An `emit` that records its batches and refuses the first `refuse` calls."""

    batches: list[Batch] = field(default_factory=list)
    refuse: int = 0

    async def __call__(self, batch: Batch, *, transport: str = "") -> None:
        if self.refuse:
            self.refuse -= 1
            raise Refused("refused by the test")
        self.batches.append(batch)

    @property
    def point_count(self) -> int:
        return sum(batch.point_count for batch in self.batches)


PATIENCE = float(os.environ.get("ZERNEL_PATIENCE", "60"))
"""The longest wait of `until` in seconds. Emulated machines need more."""


async def until(condition: Callable[[], object], within: float = PATIENCE) -> None:
    """Returns when `condition` is true. Raises `TimeoutError` after `within` s."""
    async with asyncio.timeout(within):
        while not condition():  # noqa: ASYNC110  # the condition is a function, not an event
            await asyncio.sleep(0.001)
