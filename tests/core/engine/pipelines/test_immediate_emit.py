"""Batches that need neither a processor nor waiting are accepted at once; for any other, nothing happens."""

import asyncio
from collections.abc import AsyncIterator, Iterable
from contextlib import asynccontextmanager
from functools import partial
from typing import Any

from opentelemetry.metrics import NoOpMeter

from otel_zernel.batch import ALL_SIGNALS, Batch
from otel_zernel.component import ComponentConfig, ImmediateEmit, Processor
from otel_zernel.engine.delivery import Delivery
from otel_zernel.engine.pipelines.fan_out import FanOut
from otel_zernel.engine.pipelines.pipeline import Pipeline, Stage
from otel_zernel.telemetry import Instruments
from otel_zernel.testing import make_context, until
from tests.core.engine.wiring import losses_of
from tests.core.parts import Sink, SinkConfig, batch_of, values_of

INSTRUMENTS = Instruments(NoOpMeter("test"))


class Untouched(Processor):
    """Changes nothing."""

    def process(self, batch: Batch) -> Iterable[Batch]:
        return (batch,)


class EndlessSink(Sink):
    """Never ends."""

    async def export(self, batch: Batch) -> None:
        await asyncio.Event().wait()


@asynccontextmanager
async def fan_out(*sinks: Sink, stages: tuple[Stage, ...] = ()) -> AsyncIterator[tuple[FanOut, asyncio.Lock]]:
    """One pipeline for each sink."""
    lock = asyncio.Lock()
    async with _entered(sinks) as deliveries:
        pipelines = [Pipeline("p", stages, [delivery], ALL_SIGNALS, lock) for delivery in deliveries]
        yield FanOut(pipelines, partial(INSTRUMENTS.receiver, "source")), lock


@asynccontextmanager
async def _entered(sinks: Iterable[Sink]) -> AsyncIterator[list[Delivery]]:
    deliveries = [Delivery(sink, INSTRUMENTS.exporter("sink"), max_bytes=1 << 20) for sink in sinks]
    for delivery in deliveries:
        await delivery.__aenter__()
    yield deliveries
    for delivery in deliveries:
        await delivery.__aexit__(None, None, None)


def sink(type_: type[Sink] = Sink, **queue: Any) -> Sink:
    return type_(SinkConfig.model_validate({"sending_queue": queue}), make_context("exporters", "sink"))


class SlowSink(Sink):
    """Takes a few turns of the event loop for each batch."""

    async def export(self, batch: Batch) -> None:
        await asyncio.sleep(0.001)
        await super().export(batch)


async def test_a_source_that_waits_for_room_gets_it_before_newer_batches() -> None:
    slow = sink(SlowSink, queue_size=1, num_consumers=1, block_on_overflow=True)
    async with fan_out(slow) as (emit, _):
        while emit.at_once(batch_of(0.0)):
            pass
        waiting = asyncio.create_task(emit(batch_of(1.0)))
        await asyncio.sleep(0)
        while not waiting.done():
            assert not emit.at_once(batch_of(2.0))
            await asyncio.sleep(0)
        await until(lambda: 1.0 in values_of(slow.batches))
        await until(lambda: emit.at_once(batch_of(3.0)))


async def test_every_exporter_of_every_pipeline_gets_a_batch_that_was_accepted_at_once() -> None:
    sinks = [sink(), sink()]
    async with fan_out(*sinks) as (emit, _):
        assert isinstance(emit, ImmediateEmit)
        assert emit.at_once(batch_of(1.0, 2.0))
        assert emit.accepted.points == 2
        await until(lambda: all(values_of(one.batches) == [1.0, 2.0] for one in sinks))


async def test_nothing_is_accepted_at_once_while_the_pipelines_are_held() -> None:
    async with fan_out(sink()) as (emit, lock), lock:
        assert not emit.at_once(batch_of(1.0))
        assert emit.accepted.points == 0


async def test_a_processor_sees_every_batch() -> None:
    stage = Stage(Untouched(ComponentConfig(), make_context("processors")), INSTRUMENTS.processor("p", "p"))
    async with fan_out(sink(), stages=(stage,)) as (emit, _):
        assert not emit.at_once(batch_of(1.0))


async def test_an_exporter_without_a_queue_is_awaited() -> None:
    async with fan_out(sink(enabled=False)) as (emit, _):
        assert not emit.at_once(batch_of(1.0))


async def test_a_full_queue_leaves_the_decision_to_the_rules_for_full_queues() -> None:
    stuck, working = sink(EndlessSink, queue_size=1, num_consumers=1), sink()
    async with fan_out(working, stuck) as (emit, _):
        assert emit.at_once(batch_of(1.0))
        await asyncio.sleep(0)
        accepted = 1
        while emit.at_once(batch_of(2.0)):
            accepted += 1
            assert accepted < 4
        assert emit.accepted.points == accepted
        await until(lambda: len(values_of(working.batches)) == accepted)


async def test_a_batch_of_two_signals_is_not_accepted_at_once_since_each_is_queued_by_itself() -> None:
    async with fan_out(sink()) as (emit, _):
        two = batch_of(1.0)
        two.edit_logs()
        assert not emit.at_once(two)


async def test_a_batch_without_a_queue_whose_source_gives_up_is_counted_once() -> None:
    direct = sink(enabled=False)
    direct.gate = asyncio.Event()
    async with fan_out(direct) as (emit, _):
        assert not emit.at_once(batch_of(1.0))
        emitting = asyncio.create_task(emit(batch_of(1.0)))
        await until(lambda: direct.attempts)
        emitting.cancel()
        await asyncio.wait([emitting])
        await until(lambda: losses_of(direct) == {"exporter_stopped": 1})
