"""Batches go to all exporters or to none, through the processors once, and no component's bug stops them."""

import asyncio
import time
from collections.abc import AsyncIterator, Iterator
from contextlib import AsyncExitStack, asynccontextmanager
from functools import partial
from typing import Any

import pytest
from opentelemetry.metrics import NoOpMeter
from opentelemetry.proto.trace.v1.trace_pb2 import TracesData

from otel_zernel.batch import Batch
from otel_zernel.component import BOTH, PAUSE, ComponentConfig, Context, Insist, Processor, Signal
from otel_zernel.engine.delivery import Delivery
from otel_zernel.engine.pipeline import FanOut, Pipeline, Stage
from otel_zernel.engine.yielding import LONGEST_SLICE
from otel_zernel.errors import Permanent, Refused, Rejected
from otel_zernel.telemetry import Instruments, ReceiverMetrics
from otel_zernel.testing import Dropped, FakeClock, make_context, until
from tests.core.parts import Doubler, Keeper, Sink, SinkConfig, Ticker, batch_of, values_of

INSTRUMENTS = Instruments(NoOpMeter("test"))


def stage_of(cls: type[Processor]) -> Stage:
    return Stage(cls(ComponentConfig(), make_context("processors")), INSTRUMENTS.processor("p", "pipeline"))


class Plant:
    """Pipelines into sinks, entered."""

    def __init__(self, stack: AsyncExitStack) -> None:
        self.stack = stack
        self.sinks: list[Sink] = []
        self.lock = asyncio.Lock()

    async def delivery(self, **sending_queue: Any) -> Delivery:
        config = SinkConfig.model_validate({"sending_queue": {"num_consumers": 1, **sending_queue}})
        self.sinks.append(Sink(config, make_context("exporters", f"sink/{len(self.sinks)}")))
        return await self.stack.enter_async_context(Delivery(self.sinks[-1], INSTRUMENTS.exporter("sink")))

    def pipeline(
        self, name: str, stages: list[Stage], deliveries: list[Delivery], signals: frozenset[Signal] = BOTH
    ) -> Pipeline:
        return Pipeline(name, stages, deliveries, signals, self.lock)

    def emit_into(self, *pipelines: Pipeline) -> FanOut:
        return FanOut(pipelines, partial(INSTRUMENTS.receiver, "source"))


@asynccontextmanager
async def plant() -> AsyncIterator[Plant]:
    async with AsyncExitStack() as stack:
        yield Plant(stack)


async def test_processors_are_applied_in_order_and_every_exporter_gets_the_result() -> None:
    async with plant() as it:
        deliveries = [await it.delivery(), await it.delivery()]
        emit = it.emit_into(it.pipeline("p", [stage_of(Doubler), stage_of(Doubler)], deliveries))
        await emit(batch_of(1.0))
        await asyncio.gather(*(delivery.drain() for delivery in deliveries))
        assert [values_of(sink.batches) for sink in it.sinks] == [[4.0], [4.0]]


async def test_each_pipeline_of_a_receiver_has_a_batch_of_its_own() -> None:
    async with plant() as it:
        plain, doubled = await it.delivery(), await it.delivery()
        emit = it.emit_into(it.pipeline("doubled", [stage_of(Doubler)], [doubled]), it.pipeline("plain", [], [plain]))
        await emit(batch_of(1.0))
        await asyncio.gather(plain.drain(), doubled.drain())
        assert [values_of(sink.batches) for sink in it.sinks] == [[1.0], [2.0]]


async def test_a_full_queue_refuses_before_any_processor_or_exporter_sees_the_batch() -> None:
    async with plant() as it:
        roomy, tight = await it.delivery(), await it.delivery(queue_size=1)
        it.sinks[1].gate = asyncio.Event()
        keeper = stage_of(Keeper)
        emit = it.emit_into(it.pipeline("keeping", [keeper], [roomy]), it.pipeline("tight", [], [tight]))
        await emit(batch_of(1.0))
        await until(lambda: it.sinks[1].attempts)
        await emit(batch_of(2.0))
        with pytest.raises(Refused, match="sink/1"):
            await emit(batch_of(3.0))
        assert values_of(keeper.flush()) == [1.0, 2.0]
        it.sinks[1].gate.set()
        await tight.drain()
        assert values_of(it.sinks[1].batches) == [1.0, 2.0]


async def test_block_on_overflow_waits_for_room_in_place_of_refusing() -> None:
    async with plant() as it:
        delivery = await it.delivery(queue_size=1, block_on_overflow=True)
        sink = it.sinks[0]
        sink.gate = asyncio.Event()
        emit = it.emit_into(it.pipeline("p", [], [delivery]))
        await emit(batch_of(1.0))
        await until(lambda: sink.attempts)
        await emit(batch_of(2.0))
        waiting = asyncio.create_task(emit(batch_of(3.0)))
        await asyncio.sleep(0.01)
        assert not waiting.done()
        sink.gate.set()
        await waiting
        await delivery.drain()
        assert values_of(sink.batches) == [1.0, 2.0, 3.0]


async def test_insisting_offers_a_refused_batch_until_it_is_taken_once() -> None:
    async with plant() as it:
        delivery = await it.delivery(queue_size=1)
        emit = Insist(it.emit_into(it.pipeline("p", [], [delivery])), FakeClock())
        for value in range(50):
            await emit(batch_of(float(value)))
        await delivery.drain()
        assert values_of(it.sinks[0].batches) == list(range(50))


async def test_a_batch_that_breaks_a_processor_is_counted_and_the_next_passes() -> None:
    async with plant() as it:
        delivery = await it.delivery()
        stage = stage_of(Doubler)
        emit = it.emit_into(it.pipeline("p", [stage], [delivery]))
        await emit(batch_of(-1.0, 1.0))
        await emit(batch_of(3.0))
        await delivery.drain()
        dropped = stage.processor.context.drop
        assert isinstance(dropped, Dropped)
        assert (values_of(it.sinks[0].batches), dropped.counts) == ([6.0], {"processor_error": 2})


async def test_flush_brings_out_what_a_processor_holds_through_those_behind_it() -> None:
    async with plant() as it:
        delivery = await it.delivery()
        pipeline = it.pipeline("p", [stage_of(Keeper), stage_of(Doubler)], [delivery])
        await it.emit_into(pipeline)(batch_of(1.0))
        assert not len(delivery.queue)
        await pipeline.flush()
        await pipeline.flush()
        await delivery.drain()
        assert values_of(it.sinks[0].batches) == [2.0]


async def test_a_processor_ticks_by_the_clock() -> None:
    async with plant() as it:
        delivery = await it.delivery()
        pipeline = it.pipeline("p", [stage_of(Ticker), stage_of(Doubler)], [delivery])
        await it.emit_into(pipeline)(batch_of(1.0, 2.0))
        ticking = asyncio.create_task(pipeline.run_ticks())
        await until(lambda: len(it.sinks[0].batches) >= 3)
        ticking.cancel()
        assert values_of(it.sinks[0].batches)[:3] == [4.0, 4.0, 4.0]


async def test_a_tick_waits_while_a_queue_that_is_measured_in_items_is_exactly_full() -> None:
    async with plant() as it:
        delivery = await it.delivery(queue_size=2, sizer="items")
        it.sinks[0].gate = asyncio.Event()
        pipeline = it.pipeline("p", [stage_of(Ticker)], [delivery])
        delivery.put(batch_of(1.0))
        await until(lambda: it.sinks[0].attempts)
        delivery.put(batch_of(2.0, 3.0))
        ticking = asyncio.create_task(pipeline.run_ticks())
        for _ in range(100):
            await asyncio.sleep(0)
        assert len(delivery.queue) == 1
        it.sinks[0].gate.set()
        await until(lambda: len(it.sinks[0].batches) > 2)
        ticking.cancel()


async def test_a_pipeline_carries_only_the_signal_of_its_name() -> None:
    async with plant() as it:
        delivery = await it.delivery()
        emit = it.emit_into(it.pipeline("metrics/a", [], [delivery], frozenset({"metrics"})))
        traces = TracesData()
        traces.resource_spans.add().scope_spans.add().spans.add(name="step")
        await emit(Batch(metrics=batch_of(1.0).metrics, spans=traces))
        await emit(Batch(spans=traces))
        await delivery.drain()
        assert [(batch.point_count, batch.has_spans) for batch in it.sinks[0].batches] == [(1, False)]


async def test_an_only_pipeline_edits_the_received_batch_in_place() -> None:
    async with plant() as it:
        delivery = await it.delivery()
        batch = batch_of(1.0)
        message = batch.metrics
        await it.emit_into(it.pipeline("p", [stage_of(Doubler)], [delivery]))(batch)
        await delivery.drain()
        assert values_of(it.sinks[0].batches) == [2.0]
        assert it.sinks[0].batches[0].metrics is message


async def test_accepted_and_refused_items_are_counted_by_transport() -> None:
    counted: list[tuple[str, int, int]] = []

    def metrics(transport: str) -> ReceiverMetrics:
        return ReceiverMetrics(
            accepted=lambda batch: counted.append((transport, batch.point_count, 0)),  # type: ignore[arg-type]  # a counter is only called
            refused=lambda batch: counted.append((transport, 0, batch.point_count)),  # type: ignore[arg-type]
        )

    async with plant() as it:
        delivery = await it.delivery(queue_size=1)
        it.sinks[0].gate = asyncio.Event()
        emit = FanOut([it.pipeline("p", [], [delivery])], metrics)
        await emit(batch_of(1.0), transport="grpc")
        await until(lambda: it.sinks[0].attempts)
        await emit(batch_of(2.0, 3.0))
        with pytest.raises(Refused):
            await emit(batch_of(4.0), transport="http")
        assert counted == [("grpc", 1, 0), ("", 2, 0), ("http", 0, 1)]


class Pausing(Processor):
    """Works on each batch in pieces, and notes when it is called in the middle of one."""

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


async def test_a_processor_that_pauses_in_a_batch_is_not_called_with_another() -> None:
    async with plant() as it:
        delivery = await it.delivery()
        pausing = stage_of(Pausing)
        emit = it.emit_into(it.pipeline("p", [pausing], [delivery]))
        await asyncio.gather(emit(batch_of(1.0)), emit(batch_of(2.0)), emit(batch_of(3.0)))
        await delivery.drain()
        assert isinstance(pausing.processor, Pausing)
        assert pausing.processor.interrupted == 0
        assert values_of(it.sinks[0].batches) == [1.0, 2.0, 3.0]


async def test_a_receiver_that_is_cancelled_in_the_middle_of_a_batch_leaves_it_whole() -> None:
    async with plant() as it:
        deliveries = [await it.delivery(), await it.delivery()]
        pipelines = [it.pipeline(f"p{n}", [stage_of(Pausing)], [deliveries[n]]) for n in range(2)]
        emitting = asyncio.create_task(it.emit_into(*pipelines)(batch_of(1.0)))
        await asyncio.sleep(0)
        emitting.cancel()
        with pytest.raises(asyncio.CancelledError):
            await emitting
        await asyncio.gather(*(delivery.drain() for delivery in deliveries))
        assert [values_of(sink.batches) for sink in it.sinks] == [[1.0], [1.0]]


async def test_what_is_cancelled_before_an_exporter_without_queue_could_send_it_is_counted() -> None:
    async with plant() as it:
        delivery = await it.delivery(enabled=False)
        emit = it.emit_into(it.pipeline("p", [stage_of(Pausing)], [delivery]))
        emitting = asyncio.create_task(emit(batch_of(1.0, 2.0)))
        await asyncio.sleep(0)
        emitting.cancel()
        with pytest.raises(asyncio.CancelledError):
            await emitting
        assert (emit.accepted_points, delivery.lost, it.sinks[0].batches) == (2, 2, [])


async def test_each_signal_of_a_batch_is_delivered_by_itself() -> None:
    async with plant() as it:
        delivery = await it.delivery()
        traces = TracesData()
        traces.resource_spans.add().scope_spans.add().spans.add(name="step")
        await it.emit_into(it.pipeline("p", [], [delivery]))(Batch(metrics=batch_of(1.0).metrics, spans=traces))
        await delivery.drain()
        counts = [(batch.point_count, batch.span_count) for batch in it.sinks[0].batches]
        assert sorted(counts) == [(0, 1), (1, 0)]


async def test_without_a_queue_the_receiver_learns_that_its_batch_was_given_up() -> None:
    async with plant() as it:
        delivery = await it.delivery(enabled=False)
        it.sinks[0].failures = [Permanent("never")]
        emit = it.emit_into(it.pipeline("p", [], [delivery]))
        with pytest.raises(Rejected):
            await emit(batch_of(1.0))
        await emit(batch_of(2.0))
        assert values_of(it.sinks[0].batches) == [2.0]
