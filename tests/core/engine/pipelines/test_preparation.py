"""A processor may fetch what a batch needs before it processes the batch. The pipeline waits, but not for long.

An exporter prepares each batch once, before the queue, whatever happens to the attempts afterwards.

Batches that take long to parse are parsed before a component reads them: the event loop goes on meanwhile.
"""

import asyncio
from collections.abc import Collection, Iterable, Iterator
from contextlib import AbstractAsyncContextManager
from functools import partial

import pytest

from otel_zernel.batch import ALL_SIGNALS, Batch, Signal
from otel_zernel.batch.parsing import LARGE
from otel_zernel.component import ComponentConfig, Context, Processor
from otel_zernel.engine.delivery import Delivery
from otel_zernel.engine.pipelines.fan_out import FanOut
from otel_zernel.engine.pipelines.pipeline import Pipeline
from otel_zernel.errors import DecodeError, Retryable
from otel_zernel.testing import until
from tests.core.engine.delivery.delivering import delivering, delivering_into
from tests.core.engine.wiring import INSTRUMENTS, Counting, losses_of, piping, stage_of, staged
from tests.core.parts import Doubler, Sink, batch_of, values_of
from tests.receivers.damaged_texts import damaged_metrics


class Fetching(Processor):
    """Emits each batch if `prepare` was complete before, else nothing."""

    def __init__(self, config: ComponentConfig, context: Context) -> None:
        super().__init__(config, context)
        self.gate = asyncio.Event()
        self.gate.set()
        self.preparing = asyncio.Event()
        self.prepared: list[list[float]] = []
        self.error: Exception | None = None

    async def prepare(self, batch: Batch) -> None:
        self.preparing.set()
        await self.gate.wait()
        if self.error:
            raise self.error
        self.prepared.append(values_of([batch]))

    def process(self, batch: Batch) -> Iterable[Batch]:
        return [batch]


async def test_what_a_processor_fetches_is_there_before_it_gets_the_batch_also_from_another_processor() -> None:
    stage, processor = staged(Fetching)
    async with piping(stage_of(Doubler), stage) as (emit, delivery, sink):
        await emit(batch_of(1.0))
        await delivery.drain()
        assert processor.prepared == [[2.0]]
        assert values_of(sink.batches) == [2.0]


async def test_a_preparation_that_hangs_or_fails_costs_no_data(caplog: pytest.LogCaptureFixture) -> None:
    stage, processor = staged(Fetching)
    async with piping(stage) as (emit, delivery, sink):
        processor.gate.clear()
        await emit(batch_of(1.0))
        processor.gate.set()
        processor.error = ValueError("broken")
        await emit(batch_of(2.0))
        await delivery.drain()
        assert values_of(sink.batches) == [1.0, 2.0]
        assert processor.prepared == []
    assert "The processor failed to prepare a batch: ValueError('broken')" in caplog.text


async def test_a_source_that_is_cancelled_during_a_preparation_loses_no_batch() -> None:
    stage, processor = staged(Fetching)
    async with piping(stage) as (emit, delivery, sink):
        processor.gate.clear()
        emitting = asyncio.create_task(emit(batch_of(1.0)))
        await processor.preparing.wait()
        emitting.cancel()
        await asyncio.sleep(0)
        processor.gate.set()
        with pytest.raises(asyncio.CancelledError):
            await emitting
        await delivery.drain()
        assert values_of(sink.batches) == [1.0]
        assert processor.prepared == [[1.0]]


class Totalling(Sink):
    """Sends the running total of the values in place of each batch. The values 13 and 14 make it fail."""

    total = 0.0

    def prepares(self, batch: Batch) -> bool:
        return batch.point_count == 1

    def prepare(self, batch: Batch, *, dropped: bool) -> Iterable[Batch]:
        (value,) = values_of([batch])
        if value == 13:
            raise RuntimeError("unlucky")
        if value == 14:
            raise DecodeError("damaged")
        self.total += value
        point = batch.edit_metrics().resource_metrics[0].scope_metrics[0].metrics[0].gauge.data_points[0]
        point.as_double = self.total
        yield batch


def totalling(**queue: object) -> AbstractAsyncContextManager[tuple[Delivery, Totalling, Counting]]:
    retry = {"initial_interval": "1ms", "max_elapsed_time": "0s"}
    return delivering_into(Totalling, sending_queue={"num_consumers": 1, **queue}, retry_on_failure=retry)


def into(*deliveries: Delivery) -> FanOut:
    pipeline = Pipeline("p", [], deliveries, ALL_SIGNALS, asyncio.Lock())
    return FanOut([pipeline], partial(INSTRUMENTS.receiver, "source"))


async def test_a_batch_is_prepared_once_although_attempts_fail() -> None:
    async with totalling() as (delivery, sink, _):
        sink.failures = [Retryable("down") for _ in range(3)]
        emit = into(delivery)
        for value in (1.0, 2.0, 4.0):
            await emit(batch_of(value))
        await delivery.drain()
        assert values_of(sink.batches) == [1.0, 3.0, 7.0]


async def test_an_exporter_without_a_queue_prepares_once_too() -> None:
    async with totalling(enabled=False) as (delivery, sink, _):
        sink.failures = [Retryable("down")]
        for value in (1.0, 2.0):
            await into(delivery)(batch_of(value))
        assert values_of(sink.batches) == [1.0, 3.0]


async def test_the_other_exporters_get_the_batch_as_it_is() -> None:
    async with totalling() as (first, totals, _), delivering() as (second, plain, _):
        emit = into(first, second)
        await emit(batch_of(1.0))
        await emit(batch_of(2.0))
        await asyncio.gather(first.drain(), second.drain())
        assert (values_of(totals.batches), values_of(plain.batches)) == ([1.0, 3.0], [1.0, 2.0])


async def test_a_batch_that_has_to_be_prepared_is_not_accepted_at_once() -> None:
    async with totalling() as (delivery, _, _):
        assert not into(delivery).at_once(batch_of(1.0))
        assert into(delivery).at_once(batch_of(1.0, 2.0))
        await delivery.drain()


async def test_a_batch_that_a_full_queue_drops_is_prepared_so_that_the_next_total_has_it() -> None:
    async with totalling(queue_size=1) as (full, sink, _), delivering() as (healthy, _, _):
        sink.gate = asyncio.Event()
        emit = into(full, healthy)
        await emit(batch_of(1.0))
        await until(lambda: sink.attempts)
        for value in (2.0, 4.0, 8.0):
            await emit(batch_of(value))
        sink.gate.set()
        await full.drain()
        await emit(batch_of(16.0))
        await asyncio.gather(full.drain(), healthy.drain())
        assert values_of(sink.batches) == [1.0, 3.0, 31.0]
        assert losses_of(sink) == {"queue_full": 2}


async def test_a_batch_that_cannot_be_prepared_is_counted_and_the_next_one_arrives() -> None:
    async with totalling() as (delivery, sink, _):
        emit = into(delivery)
        for value in (1.0, 13.0, 14.0, 2.0):
            await emit(batch_of(value))
        await delivery.drain()
        assert values_of(sink.batches) == [1.0, 3.0]
        assert losses_of(sink) == {"exporter_error": 1, "undecodable": 1}
        assert delivery.lost == 2


DAMAGED = Batch.from_bytes(metrics=damaged_metrics())
BATCHES = pytest.mark.parametrize(
    "batch",
    [DAMAGED, batch_of(*map(float, range(LARGE // 20)))],
    ids=["damaged", "large"],
)


class Reader(Processor):
    """Notes whether reading costs little."""

    Config = ComponentConfig
    stability = "alpha"
    seen: list[bool]

    def process(self, batch: Batch) -> Iterable[Batch]:
        self.seen = [batch.is_readable()]
        return (batch,)


class Forwarder(Reader):
    """Reads nothing."""

    @property
    def reads(self) -> Collection[Signal]:
        return ()


@BATCHES
async def test_a_processor_gets_a_readable_batch(batch: Batch) -> None:
    given = Batch.from_bytes(metrics=batch.bytes_of("metrics"))
    assert not given.is_readable()
    stage, processor = staged(Reader)
    async with piping(stage) as (emit, _, _):
        await emit(given)
        assert processor.seen == [True]


async def test_a_processor_that_reads_nothing_gets_the_received_bytes() -> None:
    given = Batch.from_bytes(metrics=damaged_metrics())
    stage, processor = staged(Forwarder)
    async with piping(stage) as (emit, delivery, sink):
        await emit(given)
        assert processor.seen == [False]
        await delivery.drain()
        assert [received.bytes_of("metrics") for received in sink.batches] == [damaged_metrics()]


@BATCHES
async def test_a_batch_that_an_exporter_prepares_is_readable(batch: Batch) -> None:
    seen = []

    def prepare(prepared: Batch, *, dropped: bool) -> Iterator[Batch]:
        seen.append(prepared.is_readable())
        yield prepared

    async with piping() as (emit, _, sink):
        sink.prepares = lambda batch: True  # type: ignore[method-assign]
        sink.prepare = prepare  # type: ignore[method-assign, assignment]
        await emit(Batch.from_bytes(metrics=batch.bytes_of("metrics")))
    assert seen == [True]
