"""Batches that need neither a processor nor waiting are accepted at once; for any other, nothing happens."""

import asyncio

from otel_zernel.component import ImmediateEmit
from otel_zernel.testing import until
from tests.core.engine.wiring import losses_of, piping, stage_of, wiring
from tests.core.parts import Doubler, batch_of, values_of


async def test_a_source_that_waits_for_room_gets_it_before_newer_batches() -> None:
    async with piping(queue_size=1, block_on_overflow=True) as (emit, _, sink):
        sink.pause = 0.001
        while emit.at_once(batch_of(0.0)):
            pass
        waiting = asyncio.create_task(emit(batch_of(1.0)))
        await asyncio.sleep(0)
        while not waiting.done():
            assert not emit.at_once(batch_of(2.0))
            await asyncio.sleep(0)
        await until(lambda: 1.0 in values_of(sink.batches))
        await until(lambda: emit.at_once(batch_of(3.0)))


async def test_every_exporter_of_every_pipeline_gets_a_batch_that_was_accepted_at_once() -> None:
    async with wiring() as it:
        deliveries = [await it.delivery(), await it.delivery()]
        emit = it.emit_into(*(it.pipeline("p", [], [delivery]) for delivery in deliveries))
        assert isinstance(emit, ImmediateEmit)
        assert emit.at_once(batch_of(1.0, 2.0))
        assert emit.accepted.points == 2
        await until(lambda: all(values_of(sink.batches) == [1.0, 2.0] for sink in it.sinks))


async def test_nothing_is_accepted_at_once_while_the_pipelines_are_held() -> None:
    async with wiring() as it:
        emit = it.emit_into(it.pipeline("p", [], [await it.delivery()]))
        async with it.lock:
            assert not emit.at_once(batch_of(1.0))
            assert emit.accepted.points == 0


async def test_a_processor_sees_every_batch() -> None:
    async with piping(stage_of(Doubler)) as (emit, _, _):
        assert not emit.at_once(batch_of(1.0))


async def test_an_exporter_without_a_queue_is_awaited() -> None:
    async with piping(enabled=False) as (emit, _, _):
        assert not emit.at_once(batch_of(1.0))


async def test_a_full_queue_leaves_the_decision_to_the_rules_for_full_queues() -> None:
    async with wiring() as it:
        deliveries = [await it.delivery(), await it.delivery(queue_size=1)]
        emit = it.emit_into(*(it.pipeline("p", [], [delivery]) for delivery in deliveries))
        working, stuck = it.sinks
        stuck.gate = asyncio.Event()
        assert emit.at_once(batch_of(1.0))
        await asyncio.sleep(0)
        accepted = 1
        while emit.at_once(batch_of(2.0)):
            accepted += 1
            assert accepted < 4
        assert emit.accepted.points == accepted
        await until(lambda: len(values_of(working.batches)) == accepted)


async def test_a_batch_of_two_signals_is_not_accepted_at_once_since_each_is_queued_by_itself() -> None:
    async with piping() as (emit, _, _):
        two = batch_of(1.0)
        two.edit_logs()
        assert not emit.at_once(two)


async def test_a_batch_without_a_queue_whose_source_gives_up_is_counted_once() -> None:
    async with piping(enabled=False) as (emit, _, sink):
        sink.gate = asyncio.Event()
        assert not emit.at_once(batch_of(1.0))
        emitting = asyncio.create_task(emit(batch_of(1.0)))
        await until(lambda: sink.attempts)
        emitting.cancel()
        await asyncio.wait([emitting])
        await until(lambda: losses_of(sink) == {"exporter_stopped": 1})
