"""A machine whose disk survives its collectors, for the tests of durable queues."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

from otel_zernel.batch import Batch
from otel_zernel.engine.delivery import Delivery
from otel_zernel.engine.pipelines.fan_out import FanOut
from tests.core.engine.journals import MemoryStorage
from tests.core.engine.wiring import Wiring, wiring

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

    @asynccontextmanager
    async def down(self, **queue: Any) -> AsyncIterator[tuple[Wiring, Delivery, FanOut]]:
        """A run whose exporter's attempts fail, and its receiver's emit."""
        async with self.run(**queue) as (it, delivery):
            it.sinks[0].is_down = True
            yield it, delivery, it.emit_into(it.pipeline("p", [], [delivery]))

    async def store(self, *batches: Batch) -> None:
        """Leaves batches on the disk."""
        async with self.down() as (_, _, emit):
            for batch in batches:
                await emit(batch)
