"""A machine whose disk survives its collectors, for the tests of durable queues."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

from otel_zernel.engine.delivery import Delivery
from otel_zernel.errors import Retryable
from tests.core.engine.journals import MemoryStorage
from tests.core.engine.wiring import Wiring, wiring
from tests.core.parts import batch_of

NAME = "exporters::sink/0"
DOWN = {"initial_interval": "1h"}


class Machine:
    """A storage that outlives several runs of a pipeline into one exporter."""

    def __init__(self) -> None:
        self.storage = MemoryStorage()
        self.disk = self.storage.disk(NAME)

    @asynccontextmanager
    async def run(self, **queue: Any) -> AsyncIterator[tuple[Wiring, Delivery]]:
        async with wiring(retry=DOWN) as it:
            it.extensions["storage"] = self.storage
            yield it, await it.delivery(storage="storage", **queue)


def is_down(it: Wiring) -> None:
    it.sinks[0].failures = [Retryable("down") for _ in range(10_000)]


async def stored(machine: Machine, count: int) -> None:
    """Leaves batches with the values 0, 1, 2, ... on the disk."""
    async with machine.run() as (it, delivery):
        is_down(it)
        emit = it.emit_into(it.pipeline("p", [], [delivery]))
        for value in range(count):
            await emit(batch_of(float(value)))
