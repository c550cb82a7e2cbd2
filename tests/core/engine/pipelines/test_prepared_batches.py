"""An exporter prepares each batch once, before the queue, whatever happens to the attempts afterwards."""

import asyncio
from collections.abc import Iterable
from functools import partial

from otel_zernel.batch import ALL_SIGNALS, Batch
from otel_zernel.engine.delivery import Delivery
from otel_zernel.engine.pipelines.fan_out import FanOut
from otel_zernel.engine.pipelines.pipeline import Pipeline
from otel_zernel.errors import DecodeError, Retryable
from otel_zernel.testing import make_context, until
from tests.core.engine.pipelines.test_immediate_emit import INSTRUMENTS
from tests.core.engine.wiring import losses_of
from tests.core.parts import Sink, SinkConfig, batch_of, values_of


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


def sink(kind: type[Sink] = Totalling, **queue: object) -> Sink:
    retry = {"initial_interval": "1ms", "max_elapsed_time": "0s"}
    config = {"sending_queue": {"num_consumers": 1, **queue}, "retry_on_failure": retry}
    return kind(SinkConfig.model_validate(config), make_context("exporters", "sink"))


def into(*deliveries: Delivery) -> FanOut:
    pipeline = Pipeline("p", [], deliveries, ALL_SIGNALS, asyncio.Lock())
    return FanOut([pipeline], partial(INSTRUMENTS.receiver, "source"))


async def test_a_batch_is_prepared_once_although_attempts_fail() -> None:
    one = sink()
    one.failures = [Retryable("down") for _ in range(3)]
    async with Delivery(one, INSTRUMENTS.exporter("sink")) as delivery:
        emit = into(delivery)
        for value in (1.0, 2.0, 4.0):
            await emit(batch_of(value))
        await delivery.drain()
    assert values_of(one.batches) == [1.0, 3.0, 7.0]


async def test_an_exporter_without_a_queue_prepares_once_too() -> None:
    one = sink(enabled=False)
    one.failures = [Retryable("down")]
    async with Delivery(one, INSTRUMENTS.exporter("sink")) as delivery:
        for value in (1.0, 2.0):
            await into(delivery)(batch_of(value))
    assert values_of(one.batches) == [1.0, 3.0]


async def test_the_other_exporters_get_the_batch_as_it_is() -> None:
    one, other = sink(), sink(Sink)
    async with Delivery(one, INSTRUMENTS.exporter("a")) as first, Delivery(other, INSTRUMENTS.exporter("b")) as second:
        emit = into(first, second)
        await emit(batch_of(1.0))
        await emit(batch_of(2.0))
        await asyncio.gather(first.drain(), second.drain())
    assert (values_of(one.batches), values_of(other.batches)) == ([1.0, 3.0], [1.0, 2.0])


async def test_a_batch_that_has_to_be_prepared_is_not_accepted_at_once() -> None:
    one = sink()
    async with Delivery(one, INSTRUMENTS.exporter("sink"), max_bytes=1 << 20) as delivery:
        assert not into(delivery).at_once(batch_of(1.0))
        assert into(delivery).at_once(batch_of(1.0, 2.0))
        await delivery.drain()


async def test_a_batch_that_a_full_queue_drops_is_prepared_so_that_the_next_total_has_it() -> None:
    one, healthy = sink(queue_size=1), sink(Sink, queue_size=100)
    one.gate = asyncio.Event()
    async with Delivery(one, INSTRUMENTS.exporter("a")) as full, Delivery(healthy, INSTRUMENTS.exporter("b")) as other:
        emit = into(full, other)
        await emit(batch_of(1.0))
        await until(lambda: one.attempts)
        for value in (2.0, 4.0, 8.0):
            await emit(batch_of(value))
        one.gate.set()
        await full.drain()
        await emit(batch_of(16.0))
        await asyncio.gather(full.drain(), other.drain())
    assert values_of(one.batches) == [1.0, 3.0, 31.0]
    assert losses_of(one) == {"queue_full": 2}


async def test_a_batch_that_cannot_be_prepared_is_counted_and_the_next_one_arrives() -> None:
    one = sink()
    async with Delivery(one, INSTRUMENTS.exporter("sink")) as delivery:
        emit = into(delivery)
        for value in (1.0, 13.0, 14.0, 2.0):
            await emit(batch_of(value))
        await delivery.drain()
    assert values_of(one.batches) == [1.0, 3.0]
    assert losses_of(one) == {"exporter_error": 1, "undecodable": 1}
    assert delivery.lost == 2
