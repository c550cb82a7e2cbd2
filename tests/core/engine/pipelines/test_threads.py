"""A processor that works in a thread lets other tasks run, and is neither interrupted nor called again meanwhile."""

import asyncio
import threading
from collections.abc import Iterable, Iterator

import pytest
from opentelemetry.proto.trace.v1.trace_pb2 import TracesData

from otel_zernel.batch import Batch
from otel_zernel.component import ITEMS_AT_ONCE, ComponentConfig, Context, Processor
from otel_zernel.errors import DecodeError
from otel_zernel.testing import until
from tests.core.engine.wiring import losses_of, piping, staged, wiring
from tests.core.parts import Doubler, batch_of, values_of

LARGE = tuple(map(float, range(ITEMS_AT_ONCE + 1)))


class Gated(Processor):
    """Works in a thread on every batch, and waits there until the test opens the gate."""

    items_at_once = 0

    def __init__(self, config: ComponentConfig, context: Context) -> None:
        super().__init__(config, context)
        self.gate = threading.Event()
        self.inside = self.interrupted = 0

    def process(self, batch: Batch) -> Iterator[Batch]:
        self.interrupted += self.inside
        self.inside = 1
        assert self.gate.wait(30)
        yield batch
        self.inside = 0


class Placed(Doubler):
    """Records the threads in which it works."""

    items_at_once = ITEMS_AT_ONCE
    interval = 3600.0

    def __init__(self, config: ComponentConfig, context: Context) -> None:
        super().__init__(config, context)
        self.threads: list[int] = []

    def process(self, batch: Batch) -> Iterable[Batch]:
        self.threads.append(threading.get_ident())
        return super().process(batch)

    def flush(self) -> Iterable[Batch]:
        self.threads.append(threading.get_ident())
        return ()


class Failing(Gated):
    """Fails after its first output."""

    error: Exception = ValueError("broken")

    def process(self, batch: Batch) -> Iterator[Batch]:
        yield batch.copy()
        raise self.error


class Undecodable(Failing):
    error = DecodeError("damaged")


class Exhausted(Processor):
    """Takes the next element of an empty iterator, which no future can raise."""

    items_at_once = 0

    def process(self, batch: Batch) -> Iterable[Batch]:
        return [next(iter([batch][1:]))] if batch.point_count == 1 else [batch]


async def test_a_processor_that_works_in_a_thread_is_not_called_with_another_batch() -> None:
    stage, processor = staged(Gated)
    async with piping(stage) as (emit, delivery, sink):
        emitting = [asyncio.create_task(emit(batch_of(value))) for value in (1.0, 2.0, 3.0)]
        await until(lambda: processor.inside)  # other tasks run meanwhile: this one
        processor.gate.set()
        await asyncio.gather(*emitting)
        await delivery.drain()
        assert processor.interrupted == 0
        assert values_of(sink.batches) == [1.0, 2.0, 3.0]


async def test_a_processor_whose_iterator_is_exhausted_loses_the_batch_and_gets_the_next_one() -> None:
    stage, processor = staged(Exhausted)
    async with piping(stage) as (emit, delivery, sink):
        await emit(batch_of(1.0))
        await emit(batch_of(2.0, 3.0))
        await delivery.drain()
        assert values_of(sink.batches) == [2.0, 3.0]
        assert losses_of(processor) == {"processor_error": 1}


async def test_a_pipeline_does_not_wait_for_the_work_of_another() -> None:
    async with wiring() as it:
        (busy, processor), (free, other) = staged(Gated), staged(Gated)
        other.gate.set()
        deliveries = [await it.delivery(), await it.delivery()]
        working = asyncio.create_task(it.emit_into(it.pipeline("busy", [busy], deliveries[:1]))(batch_of(1.0)))
        await until(lambda: processor.inside)
        it.lock = asyncio.Lock()  # they share no receiver and no exporter
        await it.emit_into(it.pipeline("free", [free], deliveries[1:]))(batch_of(2.0))
        assert not working.done()
        processor.gate.set()
        await working


async def test_a_span_with_many_events_leaves_the_event_loop() -> None:
    spans = TracesData()
    span = spans.resource_spans.add().scope_spans.add().spans.add(name="step")
    for number in range(2000):
        span.events.add(name=f"event {number}")
    stage, processor = staged(Placed)
    async with piping(stage) as (emit, _, _):
        await emit(Batch(spans=spans))
        assert threading.get_ident() not in processor.threads


async def test_only_large_batches_and_the_flush_leave_the_event_loop() -> None:
    async with wiring() as it:
        stage, processor = staged(Placed)
        pipeline = it.pipeline("p", [stage], [await it.delivery()])
        emit = it.emit_into(pipeline)
        await emit(batch_of(*LARGE[1:]))
        await emit(batch_of(*LARGE))
        await pipeline.flush()
        here = threading.get_ident()
        assert [thread == here for thread in processor.threads] == [True, False, False]


async def test_a_receiver_that_is_cancelled_during_a_batch_still_queues_all_of_it() -> None:
    async with wiring() as it:
        deliveries = [await it.delivery(), await it.delivery()]
        stages = [staged(Gated), staged(Gated)]
        pipelines = [it.pipeline(f"p{n}", [stages[n][0]], [deliveries[n]]) for n in range(2)]
        emitting = asyncio.create_task(it.emit_into(*pipelines)(batch_of(1.0)))
        await until(lambda: stages[0][1].inside)
        emitting.cancel()
        for _, processor in stages:
            processor.gate.set()
        with pytest.raises(asyncio.CancelledError):
            await emitting
        await asyncio.gather(*(delivery.drain() for delivery in deliveries))
        assert [values_of(sink.batches) for sink in it.sinks] == [[1.0], [1.0]]


async def test_a_batch_cancelled_before_an_exporter_without_a_queue_sends_it_is_counted_as_lost() -> None:
    stage, processor = staged(Gated)
    async with piping(stage, enabled=False) as (emit, delivery, sink):
        emitting = asyncio.create_task(emit(batch_of(1.0, 2.0)))
        await until(lambda: processor.inside)
        emitting.cancel()
        processor.gate.set()
        with pytest.raises(asyncio.CancelledError):
            await emitting
        assert (emit.accepted.points, delivery.lost, sink.batches) == (2, 2, [])


@pytest.mark.parametrize(("kind", "reason"), [(Failing, "processor_error"), (Undecodable, "undecodable")])
async def test_a_failure_in_the_thread_is_counted_and_keeps_the_outputs_before_it(
    kind: type[Processor], reason: str
) -> None:
    stage, processor = staged(kind)
    async with piping(stage) as (emit, delivery, sink):
        await emit(batch_of(1.0, 2.0))
        await delivery.drain()
        assert values_of(sink.batches) == [1.0, 2.0]
        assert losses_of(processor) == {reason: 2}
