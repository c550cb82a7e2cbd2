"""A processor that pauses in a batch lets other tasks run, and is neither interrupted nor called again meanwhile."""

import asyncio
import time
from collections.abc import Callable, Iterator

import pytest

from otel_zernel.batch import Batch
from otel_zernel.component import PAUSE, ComponentConfig, Context, Processor
from otel_zernel.engine.pipelines.pipeline import Stage
from otel_zernel.engine.queues import Request, join_and_split
from otel_zernel.engine.yielding import LONGEST_SLICE
from otel_zernel.telemetry import ProcessorMetrics
from tests.core.engine.wiring import stage_of, wiring
from tests.core.parts import Doubler, batch_of, values_of


class Pausing(Processor):
    """Yields `PAUSE` in the middle of each batch, and counts calls during such a pause."""

    def __init__(self, config: ComponentConfig, context: Context) -> None:
        super().__init__(config, context)
        self.inside = False
        self.interrupted = 0

    def process(self, batch: Batch) -> Iterator[Batch]:
        self.interrupted += self.inside
        self.inside = True
        for _ in range(3):
            ends = time.perf_counter() + LONGEST_SLICE
            while time.perf_counter() < ends:
                pass
            yield PAUSE
        self.inside = False
        yield batch


async def test_a_processor_that_pauses_in_a_batch_is_not_called_with_another_one() -> None:
    async with wiring() as it:
        delivery = await it.delivery()
        pausing = stage_of(Pausing)
        emit = it.emit_into(it.pipeline("p", [pausing], [delivery]))
        await asyncio.gather(emit(batch_of(1.0)), emit(batch_of(2.0)), emit(batch_of(3.0)))
        await delivery.drain()
        assert isinstance(pausing.processor, Pausing)
        assert pausing.processor.interrupted == 0
        assert values_of(it.sinks[0].batches) == [1.0, 2.0, 3.0]


async def test_a_pause_is_neither_processed_nor_counted_nor_delivered() -> None:
    outputs: list[int] = []
    async with wiring() as it:
        delivery = await it.delivery()
        counting = Stage(
            stage_of(Pausing).processor, ProcessorMetrics(incoming=lambda _: None, outgoing=outputs.append)
        )
        emit = it.emit_into(it.pipeline("p", [counting, stage_of(Doubler)], [delivery]))
        await emit(batch_of(1.0, 2.0))
        await delivery.drain()
        assert (outputs, values_of(it.sinks[0].batches)) == ([2], [2.0, 4.0])


@pytest.mark.parametrize("edit", [PAUSE.edit_metrics, PAUSE.edit_spans])
def test_a_pause_cannot_be_edited(edit: Callable[[], object]) -> None:
    with pytest.raises(TypeError, match="must not be edited"):
        edit()


async def test_a_receiver_that_is_cancelled_during_a_batch_still_queues_all_of_it() -> None:
    async with wiring() as it:
        deliveries = [await it.delivery(), await it.delivery()]
        pipelines = [it.pipeline(f"p{n}", [stage_of(Pausing)], [deliveries[n]]) for n in range(2)]
        emitting = asyncio.create_task(it.emit_into(*pipelines)(batch_of(1.0)))
        await asyncio.sleep(0)
        emitting.cancel()
        with pytest.raises(asyncio.CancelledError):
            await emitting
        await asyncio.gather(*(delivery.drain() for delivery in deliveries))
        assert [values_of(sink.batches) for sink in it.sinks] == [[1.0], [1.0]]


async def test_a_batch_cancelled_before_an_exporter_without_a_queue_sends_it_is_counted_as_lost() -> None:
    async with wiring() as it:
        delivery = await it.delivery(enabled=False)
        emit = it.emit_into(it.pipeline("p", [stage_of(Pausing)], [delivery]))
        emitting = asyncio.create_task(emit(batch_of(1.0, 2.0)))
        await asyncio.sleep(0)
        emitting.cancel()
        with pytest.raises(asyncio.CancelledError):
            await emitting
        assert (emit.accepted.points, delivery.lost, it.sinks[0].batches) == (2, 2, [])


async def test_other_tasks_run_while_a_large_batch_is_split_for_its_requests() -> None:
    ran = 0

    async def count() -> None:
        nonlocal ran
        while True:
            await asyncio.sleep(0)
            ran += 1

    counting = asyncio.create_task(count())
    requests = await join_and_split([Request(batch_of(*map(float, range(50_000))))], 100)
    counting.cancel()
    assert values_of([request.batch for request in requests]) == list(range(50_000))
    assert ran > 1, "the work takes several slices on every machine"
