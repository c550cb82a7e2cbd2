"""In an outage, a signal that floods does not push out the others."""

import asyncio
from collections.abc import Collection, Iterable
from contextlib import suppress

import pytest
from hypothesis import given
from hypothesis import strategies as st

from otel_zernel.batch import SIGNALS, Batch, Signal
from otel_zernel.component import ComponentConfig, Processor
from otel_zernel.delivery_config import SendingQueueConfig
from otel_zernel.engine.queues import MemoryQueue
from otel_zernel.engine.queues.queue import SharedRoom
from otel_zernel.errors import Refused
from otel_zernel.testing import until
from tests.core.engine.journals import MemoryStorage
from tests.core.engine.wiring import losses_of, piping, stage_of, wiring
from tests.core.parts import Ticker, batch_of, every_signal, one_span

DOWN = {"initial_interval": "1h", "max_elapsed_time": "0s"}


@given(st.integers(0, 200), st.lists(st.tuples(st.sampled_from(SIGNALS), st.integers(-3, 9)), max_size=200))
def test_half_of_the_room_is_shared_and_no_more_than_the_limit_is_taken(
    limit: int, steps: list[tuple[Signal, int]]
) -> None:
    room, taken, share, largest = SharedRoom(limit), dict.fromkeys(SIGNALS, 0), limit // 2 // 3, 0
    room.expect(SIGNALS)
    for signal, amount in steps:
        if amount > 0 and room.fits(signal, amount):
            taken[signal] += amount
            largest = max(largest, amount)
            room.take(signal, amount)
        elif amount > 0 and largest <= share:
            assert taken[signal] + amount > share  # its share has always room
        elif amount <= 0 <= taken[signal] + amount:
            taken[signal] += amount
            room.take(signal, amount)
        assert room.total == sum(taken.values()) <= limit


def test_a_single_signal_has_all_the_room() -> None:
    queue = MemoryQueue(SendingQueueConfig(queue_size=10))
    for _ in range(10):
        assert queue.has_room(batch_of(1.0))
        queue.put(batch_of(1.0))
    assert not queue.has_room(batch_of(1.0))


@pytest.mark.parametrize("expected", [SIGNALS[:2], SIGNALS])
def test_a_batch_of_most_of_the_capacity_fits_beside_another_signal(expected: Collection[Signal]) -> None:
    queue = MemoryQueue(SendingQueueConfig(queue_size=100, sizer="items"))
    queue.expect(expected)
    queue.put(one_span())
    assert not queue.has_room(batch_of(*range(100)))
    assert queue.has_room(batch_of(*range(99)))
    queue.put(batch_of(*range(99)))
    assert not queue.has_room(batch_of(1.0))


def test_a_signal_that_no_pipeline_carries_any_more_gives_its_share_back_with_its_last_entry() -> None:
    room = SharedRoom(100)
    room.expect({"metrics", "traces"})
    room.take("traces", 10)
    room.take("metrics", 5)
    room.expect({"traces"}, {"traces"})
    assert not room.fits("traces", 80)
    room.take("metrics", -5)
    assert room.fits("traces", 80)


def test_the_memory_is_shared_too() -> None:
    queue = MemoryQueue(SendingQueueConfig(), max_bytes=100 * one_span().byte_size)
    queue.expect({"metrics", "traces"})
    while queue.has_room(batch_of(1.0)):
        queue.put(batch_of(1.0))
    assert queue.bytes >= 75 * one_span().byte_size
    queue.put(one_span())
    assert queue.has_room(one_span())


@pytest.mark.parametrize("durable", [False, True])
async def test_a_flood_of_metrics_in_an_outage_leaves_the_spans_their_share(durable: bool) -> None:
    async with wiring(retry=DOWN) as it:
        it.extensions["storage"] = MemoryStorage()
        delivery = await it.delivery(queue_size=40, **({"storage": "storage"} if durable else {}))
        sink = it.sinks[0]
        sink.is_down = True
        emit = it.emit_into(it.pipeline("p", [], [delivery]))
        await emit(one_span())
        await until(lambda: sink.attempts)
        for _ in range(100):
            with suppress(Refused):
                await emit(batch_of(1.0))
        for _ in range(10):
            await emit(one_span())
        await until(lambda: delivery.queue.waiting().total == 40)
        assert delivery.queue.waiting().spans >= 10
        assert not losses_of(sink)


async def test_one_signal_of_a_batch_is_dropped_and_the_other_kept() -> None:
    async with piping(retry=DOWN, queue_size=8) as (emit, delivery, sink):
        sink.is_down = True
        delivery.queue.expect({"metrics", "traces"})
        while delivery.queue.has_room(batch_of(1.0)):
            await emit(batch_of(1.0))
            await asyncio.sleep(0)
        await emit(every_signal().only({"metrics", "traces"}))
        assert delivery.queue.waiting().spans == 1
        assert losses_of(sink) == {"queue_full": 1}


async def test_a_tick_waits_in_an_outage_while_one_of_its_signals_has_no_room_in_any_queue() -> None:
    async with wiring(retry=DOWN) as it:
        delivery = await it.delivery(queue_size=8)
        it.sinks[0].is_down = True
        delivery.queue.expect({"metrics", "traces"})
        pipeline = it.pipeline("p", [stage_of(Ticker)], [delivery])
        delivery.queue.put(batch_of(1.0))
        await until(lambda: delivery.is_stuck)
        for _ in range(100):
            if delivery.queue.has_room(batch_of(1.0)):
                delivery.queue.put(batch_of(1.0))
            await asyncio.sleep(0)
        assert delivery.full_signals() == {"metrics"}
        ticking = asyncio.create_task(pipeline.run_ticks())
        await until(lambda: delivery.waiting_sources)
        for lease in delivery.queue.take_all():
            lease.acknowledge()
        delivery.consumers.wake()
        await until(lambda: len(delivery.queue))
        ticking.cancel()
        assert not losses_of(it.sinks[0])


class Counter(Processor):
    """Makes ten batches of metrics of each batch of spans, and passes it on."""

    Config = ComponentConfig
    stability = "alpha"

    def process(self, batch: Batch) -> Iterable[Batch]:
        return [*([batch_of(1.0)] * 10 if "traces" in batch.signals else ()), batch]


async def test_metrics_that_a_processor_makes_of_spans_do_not_push_them_out() -> None:
    async with piping(stage_of(Counter), retry=DOWN, queue_size=200) as (emit, delivery, sink):
        sink.is_down = True
        await emit(one_span())
        await until(lambda: delivery.is_stuck)
        for _ in range(40):
            await emit(one_span())
        assert delivery.queue.waiting().spans >= 40
        assert losses_of(sink).keys() == {"queue_full"}


@pytest.mark.parametrize("config", [{"storage": "storage"}, {"block_on_overflow": True}])
async def test_a_queue_that_holds_back_exceeds_its_capacity_only_by_what_processors_make_of_one_batch(
    config: dict[str, object],
) -> None:
    async with wiring(retry=DOWN) as it:
        it.extensions["storage"] = MemoryStorage()
        delivery = await it.delivery(queue_size=200, **config)
        it.sinks[0].is_down = True
        emit = it.emit_into(it.pipeline("p", [stage_of(Counter)], [delivery]))
        await emit(one_span())
        await until(lambda: delivery.is_stuck)
        while delivery.queue.has_room(one_span()):
            await emit(one_span())
        assert 200 < delivery.queue.size + 1 <= 200 + 11
        held_back = asyncio.create_task(emit(one_span()))
        if delivery.durable:
            with pytest.raises(Refused):
                await held_back
        else:
            await until(lambda: delivery.waiting_sources)
            held_back.cancel()
        assert not losses_of(it.sinks[0])
