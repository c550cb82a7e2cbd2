"""A batch that the server does not take holds up no others: neither other targets and signals, nor its own for long."""

from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Any

import pytest

from otel_zernel.batch import Batch
from otel_zernel.engine.delivery import Delivery
from otel_zernel.errors import Correctable, Permanent, Retryable
from tests.core.engine.delivery.delivering import delivering_into
from tests.core.engine.delivery.simulated import SimulatedBackend, SimulatedClock, eventually
from tests.core.engine.delivery.test_turns import metrics_of
from tests.core.parts import one_span, values_of

Judge = Callable[[Batch, float], Exception | None]
DURABLE = pytest.mark.parametrize("durable", [False, True], ids=["memory", "durable"])


class Judging(SimulatedBackend):
    """Raises what `verdict` returns for a batch and the time of the attempt."""

    verdict: Judge

    async def export(self, batch: Batch) -> None:
        clock = self.context.clock
        await clock.sleep(self.latency)
        if error := self.verdict(batch, clock.monotonic()):
            raise error
        self.batches.append(batch)


@asynccontextmanager
async def judging(
    judge: Judge, durable: bool = False, in_order: bool = True, **queue: Any
) -> AsyncIterator[tuple[Delivery, Judging, SimulatedClock]]:
    clock = SimulatedClock()
    settings = {"queue_size": 10_000, **({"storage": "storage"} if durable else {}), **queue}
    judging_type: type[Judging] = type("Judging", (Judging,), {"in_order": in_order, "verdict": staticmethod(judge)})
    async with delivering_into(judging_type, clock, timeout="0s", sending_queue=settings) as (delivery, backend, _):
        yield delivery, backend, clock


def refusing(*bad: float, error: Exception | None = None) -> Judge:
    """A judge of batches with these points."""
    refusal = error or Correctable("500: crashed on this batch", "500")
    return lambda batch, _: refusal if "metrics" in batch.signals and set(bad) & set(values_of([batch])) else None


def delivered(backend: Judging) -> list[float]:
    return values_of([batch for batch in backend.batches if "metrics" in batch.signals])


@DURABLE
@pytest.mark.parametrize("bad", [{3}, {3, 4, 5}, {0, 19}], ids=str)
async def test_batches_that_are_refused_hold_up_no_others_and_are_dropped_alone(durable: bool, bad: set[int]) -> None:
    good = [float(number) for number in range(20) if number not in bad]
    async with judging(refusing(*bad), durable) as (delivery, backend, clock):
        for number in range(20):
            delivery.queue.put(metrics_of(float(number)))
        delivery.queue.put(metrics_of(100.0, target="another node"))
        delivery.queue.put(one_span())
        await eventually(clock, lambda: any("metrics" not in batch.signals for batch in backend.batches), before=5)
        await eventually(clock, lambda: sorted(delivered(backend)) == [*good, 100], before=900)
        assert [value for value in delivered(backend) if value < 100] == good
        while delivery.lost < len(bad):
            assert clock.now < 3600
            delivery.queue.put(metrics_of(101.0, target="another node"))
            await clock.run_until(clock.now + 10)
        assert delivery.lost == len(bad)


@DURABLE
async def test_metrics_that_are_refused_hold_up_no_spans(durable: bool) -> None:
    def judge(batch: Batch, _: float) -> Exception | None:
        return Correctable("403: no scope metrics:write", "403") if "metrics" in batch.signals else None

    async with judging(judge, durable) as (delivery, backend, clock):
        for number in range(600):
            delivery.queue.put(metrics_of(float(number), target=str(number % 30)))
            delivery.queue.put(one_span())
            await clock.run_until(number / 10)
        await eventually(clock, lambda: len(backend.batches) == 600, before=120)
        assert not any("metrics" in batch.signals for batch in backend.batches)


async def test_a_signal_whose_endpoint_or_right_is_wrong_is_kept_until_somebody_corrects_it() -> None:
    """The server takes spans all the time."""
    is_wrong = True

    def judge(batch: Batch, _: float) -> Exception | None:
        return Correctable("404: no such path", "404") if "metrics" in batch.signals and is_wrong else None

    async with judging(judge, durable=True) as (delivery, backend, clock):
        for number in range(5):
            delivery.queue.put(metrics_of(float(number)))
        while clock.now < 3600:
            delivery.queue.put(one_span())
            await clock.run_until(clock.now + 10)
        assert not delivery.lost
        is_wrong = False
        await eventually(clock, lambda: delivered(backend) == [0.0, 1.0, 2.0, 3.0, 4.0], before=clock.now + 120)


async def test_refused_spans_of_an_exporter_without_order_hold_up_no_metrics() -> None:
    def judge(batch: Batch, _: float) -> Exception | None:
        return None if "metrics" in batch.signals else Correctable("403: no scope traces:write", "403")

    async with judging(judge, durable=True, in_order=False) as (delivery, backend, clock):
        for number in range(50):
            delivery.queue.put(one_span())
            delivery.queue.put(metrics_of(float(number)))
        await eventually(clock, lambda: len(backend.batches) == 50, before=60)


@DURABLE
async def test_a_batch_that_always_times_out_stops_nothing_for_ever(durable: bool) -> None:
    judge = refusing(3.0, error=Retryable("no answer within 5 s"))
    async with judging(judge, durable) as (delivery, backend, clock):
        for number in range(20):
            delivery.queue.put(metrics_of(float(number)))
            await clock.run_until(number * 0.1)
        delivery.queue.put(metrics_of(100.0, target="another node"))
        await eventually(clock, lambda: 100.0 in delivered(backend), before=5)
        for number in range(20, 40):
            delivery.queue.put(metrics_of(float(number)))
        await eventually(clock, lambda: 39.0 in delivered(backend), before=900)
        good = [value for value in delivered(backend) if value < 100]
        assert good == sorted(good)


@pytest.mark.parametrize(
    ("durable", "error"),
    [(False, Retryable("503")), (True, Retryable("503")), (True, Correctable("401: wrong token", "401"))],
    ids=["away, memory", "away, durable", "refusing, durable"],
)
async def test_the_order_outlives_ten_minutes_without_a_working_server(durable: bool, error: Exception) -> None:
    async with judging(lambda _, now: error if now < 600 else None, durable) as (delivery, backend, clock):
        for number in range(70):
            delivery.queue.put(metrics_of(float(number)))
            await clock.run_until(number * 10.0)
        await eventually(clock, lambda: delivery.lost + len(delivered(backend)) == 70, before=1200)
        assert delivered(backend) == sorted(delivered(backend))
        if durable:
            assert delivery.lost == 0


async def test_spans_are_not_lost_with_metrics_that_they_were_gathered_with() -> None:
    def judge(batch: Batch, _: float) -> Exception | None:
        return Permanent("the server takes no metrics") if "metrics" in batch.signals else None

    async with judging(judge, batch={"flush_timeout": "1ms"}) as (delivery, backend, clock):
        for number in range(20):
            delivery.queue.put(metrics_of(float(number)))
        for _ in range(20):
            delivery.queue.put(one_span())
        await eventually(clock, lambda: delivery.lost >= 20 and backend.batches, before=3600)
        assert sum(batch.count_of("traces") for batch in backend.batches) == 20 * one_span().count_of("traces")
        assert delivery.lost == 20


@pytest.mark.parametrize("queue", [{}, {"batch": {"flush_timeout": "1ms"}}], ids=["waited", "gathered"])
async def test_good_batches_are_not_lost_with_a_refused_one_that_they_were_joined_with(queue: dict[str, Any]) -> None:
    async with judging(refusing(7.0), **queue) as (delivery, backend, clock):
        for number in range(20):
            delivery.queue.put(metrics_of(float(number)))
        await eventually(clock, lambda: delivery.lost, before=900)
        assert delivered(backend) == [float(number) for number in range(20) if number != 7]
        assert delivery.lost == 1
