"""How long a stored batch is kept: `max_age`, and the time for retries."""

import asyncio
import gc
import threading
from weakref import WeakSet

from otel_zernel.batch import Batch, ItemCount
from otel_zernel.delivery_config import SendingQueueConfig
from otel_zernel.engine.queues import open_durable
from otel_zernel.errors import Permanent, Retryable
from otel_zernel.testing import FakeClock, make_context, until
from tests.core.engine.delivery.delivering import DURABLE, delivering
from tests.core.engine.journals import MemoryStorage
from tests.core.engine.queues.machine import Machine
from tests.core.engine.wiring import losses_of
from tests.core.parts import batch_of, values_of


async def test_a_batch_that_expires_while_it_is_read_is_not_delivered() -> None:
    clock = FakeClock()
    storage = MemoryStorage(context=make_context("extensions", clock=clock))
    config = SendingQueueConfig.model_validate({"storage": "storage", "max_age": "10s"})
    context = make_context("exporters", "sink", clock=clock, extensions={"storage": storage})
    disk = storage.disk("exporters::sink")
    disk.read_gate = threading.Event()
    queue = await open_durable(context, config, None)
    await queue.put(batch_of(1.0))
    await queue.close()
    queue = await open_durable(context, config, None)
    assert queue.lease() is None  # it is being read
    clock.advance(11)
    await queue.put(batch_of(2.0))
    disk.read_gate.set()
    await until(lambda: not queue._read_ahead._reading)
    lease = queue.lease()
    assert lease
    assert values_of([lease.batch]) == [2.0]
    lease.acknowledge()
    assert (len(queue), queue.bytes, queue.stored(), disk.data) == (0, 0, ItemCount(), {})


async def test_batches_older_than_max_age_are_dropped_and_counted() -> None:
    clock = FakeClock()
    storage = MemoryStorage(context=make_context("extensions", clock=clock))
    queue = {**DURABLE, "num_consumers": 1, "max_age": "10m", "queue_size": 3}
    async with delivering(clock, storage, sending_queue=queue) as (delivery, sink, _):
        sink.gate = asyncio.Event()
        for value in (1.0, 2.0, 3.0, 4.0):
            if safe := delivery.queue.put(batch_of(value)):
                await safe
        assert not delivery.queue.has_room(batch_of(5.0))
    clock.advance(601)
    async with delivering(clock, storage, sending_queue=queue) as (delivery, sink, counted):
        sink.gate = asyncio.Event()
        assert delivery.queue.has_room(batch_of(5.0))  # what is too old takes no room
        if safe := delivery.queue.put(batch_of(5.0)):
            await safe
        sink.gate.set()
        await delivery.drain()
    assert values_of(sink.batches) == [5.0]
    assert (losses_of(sink), counted("otelcol_exporter_send_failed_metric_points")) == ({"expired": 4}, 4)
    assert storage.disk("exporters::sink").data == {}


async def test_expired_batches_leave_the_memory_and_do_not_disturb_its_accounting() -> None:
    clock = FakeClock()
    storage = MemoryStorage(context=make_context("extensions", clock=clock))
    config = SendingQueueConfig.model_validate({"storage": "storage", "max_age": "10s"})
    context = make_context("exporters", "sink", clock=clock, extensions={"storage": storage})
    queue = await open_durable(context, config, None)
    batches: WeakSet[Batch] = WeakSet()
    for _ in range(50):
        await queue.put(batch_of(*map(float, range(20))))
        batches.update(entry.batch for entry in queue._cached if entry.batch)
        clock.advance(2)
        assert not queue.full_signals()  # removes what is too old
    gc.collect()
    assert len(batches) == len(queue) < 10
    assert queue.bytes == sum(batch.byte_size for batch in batches)


async def test_with_storage_a_batch_is_retried_for_longer_than_the_default_time() -> None:
    clock = FakeClock()
    async with delivering(clock, sending_queue=DURABLE) as (delivery, sink, _):
        sink.failures = [Retryable("down") for _ in range(1000)]
        delivery.queue.put(batch_of(1.0))
        await until(lambda: sink.batches)
        assert clock.monotonic() > 10_000
        assert delivery.lost == 0


async def test_a_time_limit_for_retries_that_the_user_sets_holds_with_storage_too() -> None:
    retry = {"max_elapsed_time": "300s"}
    async with delivering(sending_queue=DURABLE, retry_on_failure=retry) as (delivery, sink, _):
        sink.is_down = True
        delivery.queue.put(batch_of(1.0))
        await until(lambda: delivery.lost)


async def test_a_given_up_batch_leaves_the_disk(machine: Machine) -> None:
    async with machine.run() as (it, delivery):
        it.sinks[0].failures = [Permanent("never")]
        await it.emit_into(it.pipeline("p", [], [delivery]))(batch_of(1.0))
        await delivery.drain()
        assert (delivery.lost, machine.disk.data) == (1, {})


async def test_a_drain_ends_after_one_more_failure_if_every_batch_is_on_the_disk(machine: Machine) -> None:
    async with machine.down() as (it, delivery, emit):
        for value in (1.0, 2.0):
            await emit(batch_of(value))
        await until(lambda: it.sinks[0].attempts == 1)
        await asyncio.wait_for(delivery.drain(), 60)
        assert it.sinks[0].attempts == 2
        assert delivery.queue.stored() == ItemCount(points=2)


async def test_a_drain_waits_for_a_backend_that_answers(machine: Machine) -> None:
    async with machine.run() as (it, delivery):
        it.sinks[0].failures = [Retryable("down")]
        emit = it.emit_into(it.pipeline("p", [], [delivery]))
        for value in (1.0, 2.0):
            await emit(batch_of(value))
        await asyncio.wait_for(delivery.drain(), 60)
        assert (len(it.sinks[0].batches), machine.disk.data) == (2, {})
