"""A processor may fetch what a batch needs before it processes the batch. The pipeline waits, but not for long."""

import asyncio
from collections.abc import Iterable

import pytest

from otel_zernel.batch import Batch
from otel_zernel.component import ComponentConfig, Context, Processor
from tests.core.engine.wiring import stage_of, wiring
from tests.core.parts import Doubler, batch_of, values_of


class Fetching(Processor):
    """Emits each batch if `prepare` was complete before, else nothing."""

    def __init__(self, config: ComponentConfig, context: Context) -> None:
        super().__init__(config, context)
        self.gate = asyncio.Event()
        self.gate.set()
        self.preparing = asyncio.Event()
        self.prepared: list[list[float]] = []
        self.error: Exception | None = None

    async def prepare(self, batch: Batch) -> None:
        self.preparing.set()
        await self.gate.wait()
        if self.error:
            raise self.error
        self.prepared.append(values_of([batch]))

    def process(self, batch: Batch) -> Iterable[Batch]:
        return [batch]


async def test_what_a_processor_fetches_is_there_before_it_gets_the_batch_also_from_another_processor() -> None:
    async with wiring() as it:
        delivery = await it.delivery()
        stage = stage_of(Fetching)
        emit = it.emit_into(it.pipeline("p", [stage_of(Doubler), stage], [delivery]))
        await emit(batch_of(1.0))
        await delivery.drain()
        assert isinstance(stage.processor, Fetching)
        assert stage.processor.prepared == [[2.0]]
        assert values_of(it.sinks[0].batches) == [2.0]


async def test_a_preparation_that_hangs_or_fails_costs_no_data(caplog: pytest.LogCaptureFixture) -> None:
    async with wiring() as it:
        delivery = await it.delivery()
        stage = stage_of(Fetching)
        assert isinstance(stage.processor, Fetching)
        emit = it.emit_into(it.pipeline("p", [stage], [delivery]))
        stage.processor.gate.clear()
        await emit(batch_of(1.0))
        stage.processor.gate.set()
        stage.processor.error = ValueError("broken")
        await emit(batch_of(2.0))
        await delivery.drain()
        assert values_of(it.sinks[0].batches) == [1.0, 2.0]
        assert stage.processor.prepared == []
    assert "The processor failed to prepare a batch: ValueError('broken')" in caplog.text


async def test_a_source_that_is_cancelled_during_a_preparation_loses_no_batch() -> None:
    async with wiring() as it:
        delivery = await it.delivery()
        stage = stage_of(Fetching)
        assert isinstance(stage.processor, Fetching)
        emit = it.emit_into(it.pipeline("p", [stage], [delivery]))
        stage.processor.gate.clear()
        emitting = asyncio.create_task(emit(batch_of(1.0)))
        await stage.processor.preparing.wait()
        emitting.cancel()
        await asyncio.sleep(0)
        stage.processor.gate.set()
        with pytest.raises(asyncio.CancelledError):
            await emitting
        await delivery.drain()
        assert values_of(it.sinks[0].batches) == [1.0]
        assert stage.processor.prepared == [[1.0]]
