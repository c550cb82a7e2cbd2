"""A disk that is full, unreadable, damaged or too small for a batch: nothing is lost without being counted."""

import asyncio
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any

import pytest

from otel_zernel.batch import ItemCount
from otel_zernel.errors import Refused
from otel_zernel.storage import Damage
from otel_zernel.testing import until
from tests.core.engine.queues.machine import NAME, Machine
from tests.core.engine.wiring import losses_of
from tests.core.parts import batch_of, values_of


async def test_a_full_disk_refuses_new_batches_and_keeps_delivering_and_recovers_by_itself(machine: Machine) -> None:
    async with machine.run() as (it, delivery):
        sink = it.sinks[0]
        sink.gate = asyncio.Event()
        emit = it.emit_into(it.pipeline("p", [], [delivery]))
        await emit(batch_of(1.0))
        await emit(batch_of(2.0))
        machine.disk.full = True
        first = asyncio.create_task(emit(batch_of(3.0)))  # finds the disk full: it waits until it is safe
        await until(lambda: delivery.queue.problem)
        assert sink.context.health.problems == {NAME: "the queue's storage failed"}
        for _ in range(5):
            with pytest.raises(Refused, match="cannot store batches: no space left on device"):
                await emit(batch_of(4.0))
        assert not first.done()
        machine.disk.full = False
        await first  # stored by itself
        assert delivery.queue.problem is None
        await until(lambda: not sink.context.health.problems)
        await emit(batch_of(4.0))
        sink.gate.set()
        await delivery.drain()
        assert values_of(sink.batches) == [1.0, 2.0, 3.0, 4.0]
        assert (machine.disk.data, delivery.lost) == ({}, 0)


async def test_a_batch_that_a_full_disk_does_not_take_is_safe_when_it_is_delivered(machine: Machine) -> None:
    machine.disk.full = True
    async with machine.run() as (it, delivery):
        emit = it.emit_into(it.pipeline("p", [], [delivery]))
        for value in (1.0, 2.0, 3.0):
            await emit(batch_of(value))
        assert values_of(it.sinks[0].batches) == [1.0, 2.0, 3.0]
        machine.disk.full = False
        await until(lambda: delivery.queue.problem is None)
    assert machine.disk.data == {}


async def test_a_batch_that_is_not_safe_at_the_end_is_refused_and_counts_as_undelivered(machine: Machine) -> None:
    machine.disk.full = True
    async with machine.down() as (it, delivery, emit):
        emitting = asyncio.create_task(emit(batch_of(1.0)))
        await until(lambda: it.sinks[0].attempts)
        assert delivery.undelivered() == ItemCount(points=1)
    with pytest.raises(Refused, match="not on the disk"):
        await emitting


async def test_an_unreadable_batch_is_counted_and_the_next_is_delivered(machine: Machine) -> None:
    await machine.store(*(batch_of(value, value) for value in (1.0, 2.0, 3.0)))
    machine.disk.broken = {2}
    async with machine.run() as (it, delivery):
        await delivery.drain()
        assert values_of(it.sinks[0].batches) == [1.0, 1.0, 3.0, 3.0]
        assert (losses_of(it.sinks[0]), delivery.lost, machine.disk.data) == ({"unreadable": 2}, 2, {})


async def test_a_disk_that_cannot_be_read_for_a_while_loses_nothing(machine: Machine) -> None:
    await machine.store(*(batch_of(value) for value in (1.0, 2.0, 3.0)))
    machine.disk.unreadable = True
    async with machine.run() as (it, delivery):
        await until(lambda: machine.disk.reads)
        for _ in range(20):  # turns of the event loop, in which another read would come
            await asyncio.sleep(0)
        assert (machine.disk.reads, it.sinks[0].batches) == (1, [])
        machine.disk.unreadable = False
        await delivery.drain()
        assert values_of(it.sinks[0].batches) == [1.0, 2.0, 3.0]
        assert (losses_of(it.sinks[0]), machine.disk.data) == ({}, {})


class NoThreads(ThreadPoolExecutor):
    """The system starts no thread for the first task."""

    failures = 1

    def submit(self, *arguments: Any, **named: Any) -> Future[Any]:
        if self.failures:
            self.failures -= 1
            raise RuntimeError("can't start new thread")
        return super().submit(*arguments, **named)


async def test_stored_batches_are_delivered_although_no_thread_could_start_at_first(machine: Machine) -> None:
    await machine.store(*(batch_of(float(value)) for value in range(3)))
    asyncio.get_running_loop().set_default_executor(threads := NoThreads())
    async with machine.run() as (it, delivery):
        await delivery.drain()
        assert values_of(it.sinks[0].batches) == [0.0, 1.0, 2.0]
        assert threads.failures == 0


async def test_a_batch_that_is_too_large_for_the_storage_is_accepted_when_it_is_delivered(machine: Machine) -> None:
    machine.disk.largest = 1000
    async with machine.down() as (it, delivery, emit):
        large = asyncio.create_task(emit(batch_of(*(float(value) for value in range(100)))))
        await until(lambda: it.sinks[0].attempts)
        await emit(batch_of(1.0))  # the others are stored
        assert not large.done()
        it.sinks[0].is_down = False
        await delivery.drain()
        await large
        assert machine.disk.data == {}


async def test_batches_that_are_too_large_for_the_storage_take_no_more_than_the_memory_limit(machine: Machine) -> None:
    machine.disk.largest = 1000
    batch = batch_of(*(float(value) for value in range(2000)))
    async with machine.down(memory_limit_mib=1) as (it, delivery, emit):
        for _ in range(100):
            sending = asyncio.create_task(emit(batch.copy()))
            await asyncio.sleep(0.001)
            sending.cancel()  # its client has given up, and will send it again
            await asyncio.gather(sending, return_exceptions=True)
        assert delivery.queue.bytes <= (1 << 20) + batch.byte_size
        it.sinks[0].is_down = False
        await delivery.drain()
        assert delivery.queue.has_room(batch)


async def test_damage_that_is_found_at_the_start_is_counted_and_logged(
    machine: Machine, caplog: pytest.LogCaptureFixture
) -> None:
    machine.disk.damage = (Damage(3, 700, "wrong checksum in 1.log", 12), Damage(0, 12, "an unfinished record"))
    async with machine.run() as (it, _):
        assert losses_of(it.sinks[0]) == {"damaged": 12}
    assert "lost 3 stored batches with 12 items: wrong checksum in 1.log" in caplog.text
