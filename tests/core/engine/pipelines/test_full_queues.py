"""A full queue in memory costs its own exporter's data. Only a queue that asks for it holds back the source."""

import asyncio
import logging
from collections.abc import Sequence
from typing import Any

import pytest

from otel_zernel.batch import Batch
from otel_zernel.component import Insist, Processor
from otel_zernel.engine.delivery import Delivery
from otel_zernel.errors import Refused
from otel_zernel.testing import FakeClock, until
from tests.core.engine.wiring import Counting, Wiring, losses_of, other_tasks_run, piping, stage_of, staged, wiring
from tests.core.parts import Doubler, Keeper, batch_of, one_span, values_of

DOWN = {"initial_interval": "1h", "max_elapsed_time": "0s"}


class Closed(Processor):
    """A processor that admits nothing while `closed`, and counts the batches that it saw."""

    closed = True
    seen = 0

    def admit(self, batch: Batch) -> None:
        if self.closed:
            raise Refused("memory is short", after=3.0)

    def process(self, batch: Batch) -> Sequence[Batch]:
        self.seen += 1
        return [batch]


@pytest.fixture
def counted() -> Counting:
    return Counting()


async def two_exporters(it: Wiring, **second: Any) -> tuple[Delivery, Delivery]:
    """A healthy exporter with a large queue, and another one that is down."""
    healthy = await it.delivery(queue_size=10_000)
    dead = await it.delivery(**{"queue_size": 5, **second})
    it.sinks[1].is_down = True
    return healthy, dead


@pytest.mark.parametrize("insists", [False, True])
async def test_a_dead_exporter_loses_its_overflow_and_the_healthy_one_gets_everything(insists: bool) -> None:
    async with wiring(retry=DOWN) as it:
        healthy, dead = await two_exporters(it)
        fan_out = it.emit_into(it.pipeline("p", [], [healthy, dead]))
        emit = Insist(fan_out, FakeClock()) if insists else fan_out
        for value in range(1000):
            await emit(batch_of(float(value)))
        await until(lambda: len(it.sinks[0].batches) == 1000)
        assert values_of(it.sinks[0].batches) == list(range(1000))
        assert losses_of(it.sinks[1]).get("queue_full", 0) + dead.undelivered().points == 1000
        assert dead.undelivered().points <= 5 + 1  # the queue and the consumer
        assert dead.lost == losses_of(it.sinks[1]).get("queue_full", 0)


async def test_an_overflow_is_counted_and_logged_once_however_many_batches_it_costs(
    counted: Counting, caplog: pytest.LogCaptureFixture
) -> None:
    async with wiring(retry=DOWN, instruments=counted.instruments) as it:
        healthy, dead = await two_exporters(it, queue_size=1)
        emit = it.emit_into(it.pipeline("p", [], [healthy, dead]))
        with caplog.at_level(logging.ERROR):
            for value in range(100):
                await emit(batch_of(float(value)))
        lost = losses_of(it.sinks[1]).get("queue_full", 0)
        assert lost >= 90
        assert counted("otelcol_exporter_enqueue_failed_metric_points") == lost
        assert counted("otelcol_receiver_refused_metric_points") == 0
        assert len([line for line in caplog.messages if "sending queue is full" in line]) == 1


async def test_a_single_dead_exporter_holds_back_a_file_and_loses_nothing(counted: Counting) -> None:
    retry = {"initial_interval": "10ms", "max_elapsed_time": "0s"}
    async with piping(retry=retry, instruments=counted.instruments, queue_size=5) as (emit, delivery, sink):
        sink.is_down = True
        insist = Insist(emit, FakeClock())

        async def read_file() -> None:
            for value in range(50):
                await insist(batch_of(float(value)))

        reading = asyncio.create_task(read_file())
        await until(lambda: counted("otelcol_receiver_refused_metric_points") and sink.attempts >= 3)
        assert not reading.done()
        assert delivery.lost == 0
        sink.is_down = False
        await until(reading.done)
        await delivery.drain()
        assert values_of(sink.batches) == list(range(50))
        assert delivery.lost == 0


async def test_a_waiting_batch_is_counted_once_however_often_its_source_emits_it(counted: Counting) -> None:
    async with piping(retry=DOWN, instruments=counted.instruments, queue_size=1) as (emit, _, sink):
        sink.is_down = True
        await emit(batch_of(1.0))
        await until(lambda: sink.attempts)
        await emit(batch_of(2.0))
        waiting, another = batch_of(3.0, 4.0), batch_of(5.0)
        for batch in [waiting] * 100 + [another] * 100:
            with pytest.raises(Refused):
                await emit(batch)
        for kind in ("receiver_refused", "exporter_enqueue_failed"):
            assert counted(f"otelcol_{kind}_metric_points") == 3
        assert losses_of(sink) == {}


async def test_a_batch_that_waited_and_is_dropped_by_one_queue_is_counted_once_there(counted: Counting) -> None:
    async with wiring(retry=DOWN, instruments=counted.instruments) as it:
        deliveries = [await it.delivery(queue_size=1), await it.delivery(queue_size=1)]
        for sink in it.sinks:
            sink.is_down = True
        emit = it.emit_into(it.pipeline("p", [], deliveries))
        for value in (1.0, 2.0):
            await emit(batch_of(value))
            await until(lambda: all(sink.attempts for sink in it.sinks))
        waiting = batch_of(3.0)
        with pytest.raises(Refused):
            await emit(waiting)
        it.sinks[0].is_down = False
        asyncio.create_task(deliveries[0].drain())  # noqa: RUF006  # ends its wait for the next attempt
        await until(lambda: not deliveries[0].queue.full_signals())
        await emit(waiting)
        assert counted("otelcol_exporter_enqueue_failed_metric_points") == 2  # once for each exporter
        assert (losses_of(it.sinks[0]), losses_of(it.sinks[1])) == ({}, {"queue_full": 1})


async def test_block_on_overflow_holds_the_source_back_for_all_exporters() -> None:
    async with wiring(retry=DOWN) as it:
        healthy, dead = await two_exporters(it, queue_size=1, block_on_overflow=True)
        emit = it.emit_into(it.pipeline("p", [], [healthy, dead]))
        await emit(batch_of(1.0))
        await until(lambda: it.sinks[1].attempts)
        await emit(batch_of(2.0))
        waiting = asyncio.create_task(emit(batch_of(3.0)))
        await other_tasks_run()
        assert not waiting.done()
        assert values_of(it.sinks[0].batches) == [1.0, 2.0]
        assert dead.lost == 0
        waiting.cancel()


async def test_a_file_is_read_no_faster_than_a_slow_exporter_works_and_loses_nothing() -> None:
    async with wiring() as it:
        fast, slow = await it.delivery(queue_size=2), await it.delivery(queue_size=2)
        it.sinks[1].pause = 0.001
        insist = Insist(it.emit_into(it.pipeline("p", [], [fast, slow])), FakeClock())
        for value in range(100):
            await insist(batch_of(float(value)))
        await asyncio.gather(fast.drain(), slow.drain())
        assert values_of(it.sinks[0].batches) == values_of(it.sinks[1].batches) == list(range(100))


async def test_a_slow_exporter_delays_no_source_that_cannot_wait() -> None:
    async with wiring() as it:
        fast, slow = await it.delivery(queue_size=1000), await it.delivery(queue_size=2)
        it.sinks[1].gate = asyncio.Event()
        emit = it.emit_into(it.pipeline("p", [], [fast, slow]))
        for value in range(100):
            await emit(batch_of(float(value)))
        await fast.drain()
        assert values_of(it.sinks[0].batches) == list(range(100))
        assert losses_of(it.sinks[1]).get("queue_full", 0) >= 90


async def test_a_local_exporter_that_works_delays_its_source_and_loses_nothing() -> None:
    async with wiring() as it:
        remote, local = await it.delivery(queue_size=1000), await it.local_delivery()
        it.sinks[1].pause = 0.0001
        emit = it.emit_into(it.pipeline("p", [], [remote, local]))
        for value in range(100):
            await emit(batch_of(float(value)))
        await asyncio.gather(remote.drain(), local.drain())
        assert values_of(it.sinks[1].batches) == list(range(100))
        assert local.lost == 0


async def test_a_file_on_a_full_disk_does_not_hold_back_a_healthy_exporter() -> None:
    async with wiring() as it:
        healthy, full_disk = await it.delivery(queue_size=1000), await it.local_delivery()
        it.sinks[1].is_down = True
        emit = it.emit_into(it.pipeline("p", [], [healthy, full_disk]))
        for value in range(200):
            await emit(batch_of(float(value)))
        await healthy.drain()
        assert values_of(it.sinks[0].batches) == list(range(200))
        assert losses_of(it.sinks[1]).get("queue_full", 0) + full_disk.undelivered().points == 200


async def test_an_exporter_that_does_not_get_a_signal_takes_no_part_in_its_admission() -> None:
    async with wiring() as it:
        metrics_only, everything = await it.delivery(), await it.delivery(queue_size=1)
        it.sinks[0].signals = frozenset({"metrics"})
        it.sinks[1].gate = asyncio.Event()
        emit = it.emit_into(it.pipeline("p", [], [metrics_only, everything]))
        await emit(one_span())
        await until(lambda: it.sinks[1].attempts)
        await emit(one_span())
        with pytest.raises(Refused):
            await emit(one_span())


async def test_a_batch_that_a_processor_refuses_was_seen_by_no_processor(counted: Counting) -> None:
    async with wiring(instruments=counted.instruments) as it:
        delivery, (keeping, keeper), (closing, closed) = await it.delivery(), staged(Keeper), staged(Closed)
        emit = it.emit_into(it.pipeline("a", [keeping], [delivery]), it.pipeline("b", [stage_of(Doubler), closing], []))
        batch = batch_of(1.0)
        for _ in range(3):
            with pytest.raises(Refused, match="memory is short") as refused:
                await emit(batch)
            assert refused.value.after == 3.0
        assert counted("otelcol_receiver_refused_metric_points") == 1
        assert (list(keeper.flush()), closed.seen) == ([], 0)
        closed.closed = False
        await emit(batch)
        assert (values_of(keeper.flush()), closed.seen) == ([1.0], 1)


async def test_a_queue_holds_no_more_than_its_bytes_whatever_its_size() -> None:
    async with piping(retry=DOWN, queue_size=1_000_000, memory_limit_mib=1) as (emit, delivery, sink):
        sink.is_down = True
        batch = batch_of(*(float(value) for value in range(2000)))
        while delivery.queue.has_room(batch):
            await emit(batch.copy())
        with pytest.raises(Refused):
            await emit(batch)
        assert 1 << 20 <= delivery.queue.bytes < (1 << 20) + batch.byte_size
