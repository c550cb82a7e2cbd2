"""A batch goes through each processor once, to each exporter that takes it, and a processor's bug stops no others."""

import asyncio

import pytest

from otel_zernel.batch import ALL_SIGNALS, Signal
from otel_zernel.component import Insist
from otel_zernel.errors import Permanent, Refused, Rejected
from otel_zernel.testing import FakeClock, until
from tests.core.engine.wiring import Counting, losses_of, other_tasks_run, piping, stage_of, staged, wiring
from tests.core.parts import Doubler, Keeper, Ticker, batch_of, every_signal, one_span, values_of

RECEIVED = ("accepted", "refused")


async def test_processors_are_applied_in_order_and_every_exporter_gets_the_result() -> None:
    async with wiring() as it:
        deliveries = [await it.delivery(), await it.delivery()]
        emit = it.emit_into(it.pipeline("p", [stage_of(Doubler), stage_of(Doubler)], deliveries))
        await emit(batch_of(1.0))
        await asyncio.gather(*(delivery.drain() for delivery in deliveries))
        assert [values_of(sink.batches) for sink in it.sinks] == [[4.0], [4.0]]


async def test_each_pipeline_of_a_receiver_has_a_batch_of_its_own() -> None:
    async with wiring() as it:
        plain, doubled = await it.delivery(), await it.delivery()
        emit = it.emit_into(it.pipeline("doubled", [stage_of(Doubler)], [doubled]), it.pipeline("plain", [], [plain]))
        await emit(batch_of(1.0))
        await asyncio.gather(plain.drain(), doubled.drain())
        assert [values_of(sink.batches) for sink in it.sinks] == [[1.0], [2.0]]


async def test_a_batch_that_no_queue_takes_is_refused_before_any_processor_gets_it() -> None:
    async with wiring() as it:
        deliveries = [await it.delivery(queue_size=1), await it.delivery(queue_size=1)]
        keeper = stage_of(Keeper)
        emit = it.emit_into(it.pipeline("keeping", [keeper], [deliveries[0]]), it.pipeline("plain", [], deliveries))
        for sink in it.sinks:
            sink.gate = asyncio.Event()
        await emit(batch_of(1.0))
        await until(lambda: all(sink.attempts for sink in it.sinks))
        await emit(batch_of(2.0))
        with pytest.raises(Refused, match="sink/1"):
            await emit(batch_of(3.0))
        assert values_of(keeper.processor.flush()) == [1.0, 2.0]
        for sink, delivery in zip(it.sinks, deliveries, strict=True):
            sink.gate.set()
            await delivery.drain()
            assert values_of(sink.batches) == [1.0, 2.0]


async def test_block_on_overflow_waits_for_room_instead_of_refusing() -> None:
    async with piping(queue_size=1, block_on_overflow=True) as (emit, delivery, sink):
        sink.gate = asyncio.Event()
        await emit(batch_of(1.0))
        await until(lambda: sink.attempts)
        await emit(batch_of(2.0))
        waiting = asyncio.create_task(emit(batch_of(3.0)))
        await other_tasks_run()
        assert not waiting.done()
        sink.gate.set()
        await waiting
        await delivery.drain()
        assert values_of(sink.batches) == [1.0, 2.0, 3.0]


async def test_insist_emits_a_refused_batch_again_until_it_is_accepted_once() -> None:
    async with piping(queue_size=1) as (emit, delivery, sink):
        insist = Insist(emit, FakeClock())
        for value in range(50):
            await insist(batch_of(float(value)))
        await delivery.drain()
        assert values_of(sink.batches) == list(range(50))


async def test_a_batch_that_breaks_a_processor_is_counted_and_the_next_passes() -> None:
    stage, doubler = staged(Doubler)
    async with piping(stage) as (emit, delivery, sink):
        await emit(batch_of(-1.0, 1.0))
        await emit(batch_of(3.0))
        await delivery.drain()
        assert (values_of(sink.batches), losses_of(doubler)) == ([6.0], {"processor_error": 2})


async def test_flush_sends_held_batches_through_the_processors_behind() -> None:
    async with wiring() as it:
        delivery = await it.delivery()
        pipeline = it.pipeline("p", [stage_of(Keeper), stage_of(Doubler)], [delivery])
        await it.emit_into(pipeline)(batch_of(1.0))
        assert not len(delivery.queue)
        await pipeline.flush()
        await pipeline.flush()
        await delivery.drain()
        assert values_of(it.sinks[0].batches) == [2.0]


async def test_a_processor_ticks_by_the_clock() -> None:
    async with wiring() as it:
        delivery = await it.delivery()
        pipeline = it.pipeline("p", [stage_of(Ticker), stage_of(Doubler)], [delivery])
        await it.emit_into(pipeline)(batch_of(1.0, 2.0))
        ticking = asyncio.create_task(pipeline.run_ticks())
        await until(lambda: len(it.sinks[0].batches) >= 3)
        ticking.cancel()
        assert values_of(it.sinks[0].batches)[:3] == [4.0, 4.0, 4.0]


async def test_a_tick_waits_while_a_queue_that_is_measured_in_items_is_exactly_full() -> None:
    async with wiring() as it:
        delivery = await it.delivery(queue_size=2, sizer="items")
        it.sinks[0].gate = asyncio.Event()
        pipeline = it.pipeline("p", [stage_of(Ticker)], [delivery])
        delivery.queue.put(batch_of(1.0))
        await until(lambda: it.sinks[0].attempts)
        delivery.queue.put(batch_of(2.0, 3.0))
        ticking = asyncio.create_task(pipeline.run_ticks())
        for _ in range(100):
            await asyncio.sleep(0)
        assert len(delivery.queue) == 1
        it.sinks[0].gate.set()
        await until(lambda: len(it.sinks[0].batches) > 2)
        ticking.cancel()


async def test_a_pipeline_carries_only_the_signal_of_its_name() -> None:
    async with wiring() as it:
        delivery = await it.delivery()
        emit = it.emit_into(it.pipeline("metrics/a", [], [delivery], frozenset({"metrics"})))
        await emit(every_signal().only({"metrics", "traces"}))
        await emit(one_span())
        await delivery.drain()
        assert [(batch.point_count, "traces" in batch.signals) for batch in it.sinks[0].batches] == [(1, False)]


@pytest.mark.parametrize("signals", [ALL_SIGNALS, frozenset({"metrics"})])
async def test_a_single_pipeline_edits_the_received_batch_in_place(signals: frozenset[Signal]) -> None:
    async with wiring() as it:
        delivery = await it.delivery()
        batch = batch_of(1.0)
        message = batch.metrics
        await it.emit_into(it.pipeline("p", [stage_of(Doubler)], [delivery], signals=signals))(batch)
        await delivery.drain()
        assert values_of(it.sinks[0].batches) == [2.0]
        assert it.sinks[0].batches[0].metrics is message


async def test_accepted_and_refused_items_are_counted_by_transport() -> None:
    counted = Counting()
    async with piping(instruments=counted.instruments, queue_size=1) as (emit, _, sink):
        sink.gate = asyncio.Event()
        await emit(batch_of(1.0), transport="grpc")
        await until(lambda: sink.attempts)
        await emit(batch_of(2.0, 3.0))
        with pytest.raises(Refused):
            await emit(batch_of(4.0), transport="http")
    accepted, refused = (counted.by_transport(f"otelcol_receiver_{kind}_metric_points") for kind in RECEIVED)
    assert (accepted, refused) == ({"grpc": 1, "": 2}, {"http": 1})


async def test_each_signal_of_a_batch_is_delivered_separately() -> None:
    async with piping() as (emit, delivery, sink):
        await emit(every_signal().only({"metrics", "traces"}))
        await delivery.drain()
        counts = [(batch.point_count, batch.count_of("traces")) for batch in sink.batches]
        assert sorted(counts) == [(0, 1), (1, 0)]


async def test_without_a_queue_emit_raises_rejected_for_a_dropped_batch() -> None:
    async with piping(enabled=False) as (emit, _, sink):
        sink.failures = [Permanent("never")]
        with pytest.raises(Rejected):
            await emit(batch_of(1.0))
        await emit(batch_of(2.0))
        assert values_of(sink.batches) == [2.0]


async def test_a_batch_whose_sender_gets_an_error_does_not_count_as_accepted() -> None:
    counted = Counting()
    async with piping(stage_of(Doubler), instruments=counted.instruments, enabled=False) as (emit, _, sink):
        sink.failures = [Permanent("never")]
        with pytest.raises(Rejected):
            await emit(batch_of(1.0, 2.0))
        await emit(batch_of(3.0))
    assert [counted(f"otelcol_receiver_{kind}_metric_points") for kind in RECEIVED] == [1, 2]
