"""A durable queue: an accepted batch is on the disk until it is delivered, and a failing disk loses none."""

import asyncio
import logging
import threading

import pytest
from hypothesis import given
from hypothesis import strategies as st

from otel_zernel.batch import ItemCount
from otel_zernel.component import Extension
from otel_zernel.delivery_config import SendingQueueConfig
from otel_zernel.engine.delivery import Delivery
from otel_zernel.engine.queues import open_durable
from otel_zernel.errors import CannotStart, Refused, Retryable
from otel_zernel.testing import make_context, until
from tests.core.engine.delivery.delivering import DURABLE, delivering
from tests.core.engine.journals import Disk, MemoryStorage
from tests.core.engine.queues.machine import Machine
from tests.core.engine.wiring import Counting, other_tasks_run
from tests.core.parts import Sink, SinkConfig, batch_of, values_of


async def test_emit_returns_only_when_the_batch_is_on_the_disk(machine: Machine) -> None:
    async with machine.down() as (_, delivery, emit):
        machine.disk.gate = asyncio.Event()
        emitting = asyncio.create_task(emit(batch_of(1.0)))
        await other_tasks_run()
        assert not emitting.done()
        assert delivery.undelivered() == ItemCount(points=1)
        machine.disk.gate.set()
        await emitting
        assert len(machine.disk.data) == 1
        assert (delivery.undelivered(), delivery.queue.stored()) == (ItemCount(), ItemCount(points=1))


async def test_batches_that_are_emitted_together_wait_for_the_disk_together(machine: Machine) -> None:
    async with machine.down() as (_, delivery, emit):
        machine.disk.gate = asyncio.Event()
        emitting = [asyncio.create_task(emit(batch_of(float(value)))) for value in range(20)]
        await until(lambda: delivery.queue.size == 20)  # all were handed to the journal, none waits for another
        machine.disk.gate.set()
        await asyncio.gather(*emitting)
        assert len(machine.disk.data) == 20


async def test_a_delivered_batch_leaves_the_disk(machine: Machine) -> None:
    async with machine.run() as (it, delivery):
        await it.emit_into(it.pipeline("p", [], [delivery]))(batch_of(1.0))
        await delivery.drain()
        assert values_of(it.sinks[0].batches) == [1.0]
        assert machine.disk.data == {}


async def test_what_was_queued_or_in_flight_at_the_end_is_delivered_after_the_next_start_oldest_first(
    machine: Machine,
) -> None:
    async with machine.down() as (it, delivery, emit):
        for value in range(10):
            await emit(batch_of(float(value)))
        await until(lambda: it.sinks[0].attempts)
        assert delivery.queue.stored() == ItemCount(points=10)
    async with machine.run() as (it, delivery):
        await it.emit_into(it.pipeline("p", [], [delivery]))(batch_of(10.0))
        await delivery.drain()
        assert values_of(it.sinks[0].batches) == list(range(11))
        assert machine.disk.data == {}


@pytest.mark.parametrize(
    ("sizer", "size", "fits"), [("requests", 3, 3), ("items", 6, 3), ("bytes", 3 * batch_of(1.0, 2.0).byte_size, 3)]
)
async def test_a_full_durable_queue_refuses_in_units_of_its_sizer(
    machine: Machine, sizer: str, size: int, fits: int
) -> None:
    async with machine.down(sizer=sizer, queue_size=size) as (it, _, emit):
        await emit(batch_of(1.0, 2.0))
        await until(lambda: it.sinks[0].attempts)  # leased: it takes no room
        for _ in range(fits):
            await emit(batch_of(1.0, 2.0))
        with pytest.raises(Refused, match="sending queue is full: sink/0"):
            await emit(batch_of(1.0, 2.0))


async def test_a_full_durable_queue_holds_the_batch_back_from_every_exporter(machine: Machine) -> None:
    async with machine.down(queue_size=1) as (it, delivery, _):
        other = await it.delivery()
        emit = it.emit_into(it.pipeline("p", [], [delivery, other]))
        await emit(batch_of(1.0))
        await until(lambda: it.sinks[0].attempts)
        await emit(batch_of(2.0))
        for _ in range(10):
            with pytest.raises(Refused):
                await emit(batch_of(3.0))
        await other.drain()
        assert values_of(it.sinks[1].batches) == [1.0, 2.0]
        assert delivery.lost == 0


async def test_a_backlog_is_read_from_the_disk_and_only_the_newest_batches_stay_in_memory(machine: Machine) -> None:
    async with machine.down(memory_limit_mib=1, queue_size=10_000) as (it, delivery, emit):
        batch = batch_of(*(float(value) for value in range(2000)))
        for _ in range(100):
            await emit(batch.copy())
        assert 100 * batch.byte_size > 5 << 20
        assert (1 << 20) - batch.byte_size <= delivery.queue.bytes <= 1 << 20
        it.sinks[0].is_down = False
        draining = asyncio.create_task(delivery.drain())
        await draining
        assert len(it.sinks[0].batches) == 100
        assert 70 < machine.disk.reads < 100
        assert (delivery.queue.bytes, machine.disk.data) == (0, {})


async def test_a_smaller_limit_frees_the_memory_of_batches_that_are_on_the_disk() -> None:
    context = make_context("exporters", "sink", extensions={"storage": MemoryStorage()})
    queue = await open_durable(context, SendingQueueConfig.model_validate({"storage": "storage"}), None)
    batch = batch_of(*map(float, range(100)))
    for _ in range(10):
        await queue.put(batch.copy())
    assert queue.bytes == 10 * batch.byte_size
    queue.limit_memory(3 * batch.byte_size)
    assert (queue.bytes, queue.full_signals()) == (3 * batch.byte_size, frozenset())
    await queue.close()


async def test_other_tasks_run_while_stored_batches_are_found_at_the_start(machine: Machine) -> None:
    await machine.store(*(batch_of(float(value)) for value in range(20)))
    machine.disk.slowness = 0.01
    turns = 0

    async def count_turns() -> None:
        nonlocal turns
        while True:
            await asyncio.sleep(0)
            turns += 1

    counting = asyncio.create_task(count_turns())
    async with machine.run() as (_, delivery):
        counting.cancel()
        assert delivery.queue.stored() == ItemCount(points=20)
        assert turns >= 19, "between each two slow records"


async def test_a_cancelled_start_stops_looking_for_stored_batches_and_closes_the_journal(machine: Machine) -> None:
    await machine.store(*(batch_of(float(value)) for value in range(20)))
    machine.disk.slowness = 0.01
    context = make_context("exporters", "sink/0", extensions={"storage": machine.storage})
    config = SendingQueueConfig.model_validate({"storage": "storage"})
    machine.disk.listed = 0
    opening = asyncio.create_task(open_durable(context, config, None))
    await until(lambda: machine.disk.listed)
    opening.cancel()
    with pytest.raises(asyncio.CancelledError):
        await opening
    assert machine.disk.listed < 5
    assert machine.storage.journals[-1].closed
    assert len(machine.disk.data) == 20


async def test_other_tasks_run_while_a_stored_batch_is_read(machine: Machine) -> None:
    await machine.store(*(batch_of(float(value)) for value in range(3)))
    machine.disk.read_gate = threading.Event()
    async with machine.run() as (it, delivery):
        emit = it.emit_into(it.pipeline("p", [], [delivery]))
        await until(lambda: machine.disk.reads)
        await emit(batch_of(3.0))  # the read still blocks
        assert (it.sinks[0].attempts, delivery.queue.stored()) == (0, ItemCount(points=4))
        machine.disk.read_gate.set()
        await delivery.drain()
        assert values_of(it.sinks[0].batches) == [0.0, 1.0, 2.0, 3.0]
        assert (delivery.queue.stored(), machine.disk.data) == (ItemCount(), {})


async def test_an_extension_that_stores_nothing_is_an_error_at_the_start() -> None:
    context = make_context("exporters", "sink", extensions={"health": Extension(None, make_context("extensions"))})
    for storage, words in (("health", "stores no data"), ("missing", "is not enabled")):
        sink = Sink(SinkConfig.model_validate({"sending_queue": {"storage": storage}}), context)
        with pytest.raises(CannotStart, match=words):
            await Delivery(sink, Counting().instruments.exporter("sink")).__aenter__()
        assert not sink.entered


async def test_the_metrics_show_the_queue_and_vanish_with_it(caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.INFO):
        async with delivering(sending_queue={**DURABLE, "num_consumers": 1}) as (delivery, sink, counted):
            sink.gate = asyncio.Event()
            delivery.queue.put(batch_of(1.0))
            await until(lambda: sink.attempts)
            await (delivery.queue.put(batch_of(2.0)) or asyncio.sleep(0))
            assert counted("otelcol_exporter_queue_size") == 1
            assert counted("otelcol_exporter_queue_capacity") == 1000
            assert counted("zernel.exporter.queue.bytes") == batch_of(2.0).byte_size
        assert counted("otelcol_exporter_queue_capacity") == 0


@given(st.lists(st.sampled_from(["emit", "full", "works", "deliver", "fail", "restart"]), max_size=40))
def test_whatever_the_disk_and_the_exporter_do_every_acknowledged_point_arrives(steps: list[str]) -> None:
    asyncio.run(_random_run(steps))


async def _random_run(steps: list[str]) -> None:
    storage, emitted, acknowledged, arrived = MemoryStorage(), 0, set[float](), list[float]()
    disk: Disk = storage.disk("exporters::sink")
    rest = list(steps)
    while rest or disk.data:
        async with delivering(storage=storage, sending_queue={**DURABLE, "num_consumers": 2}) as (delivery, sink, _):

            def acknowledge(safe: asyncio.Future[None], value: float) -> None:
                if not safe.cancelled():
                    acknowledged.add(value)

            while rest and (step := rest.pop(0)) != "restart":
                if step == "emit" and delivery.queue.has_room(batch_of(0.0)):
                    emitted += 1
                    if safe := delivery.queue.put(batch_of(float(emitted))):
                        safe.add_done_callback(lambda done, value=float(emitted): acknowledge(done, value))  # type: ignore[misc]
                disk.full = step == "full" or (disk.full and step != "works")
                sink.failures += [Retryable("busy")] * (step == "fail")
                await asyncio.sleep(0.001 if step == "deliver" else 0)
            if not rest:
                disk.full = False
                await delivery.drain()
        arrived += values_of(sink.batches)
    assert acknowledged <= set(arrived)
    assert not disk.data
