"""An attempt that fails is repeated, given up or counted, as the settings and the error say."""

import asyncio

import pytest

from otel_zernel.batch import Batch
from otel_zernel.engine.delivery.sending import MOST_REFUSALS
from otel_zernel.errors import Correctable, Permanent, Retryable
from otel_zernel.testing import until
from tests.core.engine.delivery.delivering import delivering
from tests.core.engine.wiring import losses_of
from tests.core.parts import batch_of, values_of


async def test_a_retryable_failure_is_tried_again_until_it_succeeds() -> None:
    async with delivering() as (delivery, sink, counted):
        sink.failures = [Retryable("busy"), Retryable("busy"), TimeoutError()]
        delivery.queue.put(batch_of(1.0))
        await delivery.drain()
        assert (sink.attempts, values_of(sink.batches)) == (4, [1.0])
        assert counted("otelcol_exporter_send_failed_metric_points") == 0


async def test_a_delay_that_the_server_asks_for_replaces_a_shorter_backoff() -> None:
    async with delivering() as (delivery, sink, _):
        clock = sink.context.clock
        sink.failures = [Retryable("throttled", after=100.0)]
        delivery.queue.put(batch_of(1.0))
        await delivery.drain()
        assert clock.monotonic() == pytest.approx(100.0)


async def test_the_pause_before_an_attempt_grows_up_to_max_interval() -> None:
    retries = {"initial_interval": "1s", "multiplier": 2, "max_interval": "4s", "randomization_factor": 0}
    async with delivering(retry_on_failure=retries) as (delivery, sink, _):
        sink.failures = [Retryable("down") for _ in range(4)]
        delivery.queue.put(batch_of(1.0))
        await delivery.drain()
        assert sink.context.clock.monotonic() == pytest.approx(1 + 2 + 4 + 4)


async def test_a_batch_is_given_up_after_max_elapsed_time_and_counted() -> None:
    async with delivering(retry_on_failure={"max_elapsed_time": "20s"}) as (delivery, sink, counted):
        sink.is_down = True
        delivery.queue.put(batch_of(1.0, 2.0))
        await delivery.drain()
        assert 2 < sink.attempts < 10
        assert sink.context.clock.monotonic() <= 20
        assert (delivery.lost, counted("otelcol_exporter_send_failed_metric_points")) == (2, 2)
        assert losses_of(sink) == {"retries_exhausted": 2}


@pytest.mark.parametrize("error", [Permanent("never"), ValueError("a bug"), KeyError("a bug")])
async def test_a_permanent_failure_or_a_bug_costs_that_batch_only(error: Exception) -> None:
    async with delivering() as (delivery, sink, counted):
        sink.failures = [error]
        delivery.queue.put(batch_of(1.0))
        await delivery.drain()
        delivery.queue.put(batch_of(2.0))
        await delivery.drain()
        assert (sink.attempts, values_of(sink.batches), delivery.lost) == (2, [2.0], 1)
        assert counted("otelcol_exporter_send_failed_metric_points") == 1
        assert losses_of(sink) == {"rejected": 1}


async def test_a_batch_that_a_server_refuses_while_it_takes_others_is_at_fault_in_the_end() -> None:
    refusals = 0

    def judge(batch: Batch) -> None:
        nonlocal refusals
        if values_of([batch]) == [1.0]:
            refusals += 1
            raise Correctable("500: crashed on this batch", "500")

    async with delivering(retry_on_failure={"max_elapsed_time": "0s"}) as (delivery, sink, _):
        sink.judge = judge
        delivery.queue.put(batch_of(1.0))
        await until(lambda: refusals > 3 * MOST_REFUSALS)  # nothing else was delivered: the server may be at fault
        assert delivery.lost == 0
        first = refusals
        while not delivery.lost:
            delivery.queue.put(batch_of(2.0))
            await asyncio.sleep(0)
        assert refusals >= first + MOST_REFUSALS
        assert losses_of(sink) == {"rejected": 1}


async def test_an_exporter_that_cancels_itself_costs_that_batch_only() -> None:
    async with delivering(sending_queue={"num_consumers": 1}) as (delivery, sink, _):
        sink.failures = [asyncio.CancelledError()]
        delivery.queue.put(batch_of(1.0))
        delivery.queue.put(batch_of(2.0))
        await delivery.drain()
        assert (values_of(sink.batches), delivery.lost) == ([2.0], 1)


async def test_a_timeout_error_of_the_exporter_is_retried_even_without_a_configured_timeout() -> None:
    async with delivering(timeout="0s") as (delivery, sink, _):
        sink.failures = [TimeoutError(), TimeoutError("the disk is slow")]
        delivery.queue.put(batch_of(1.0))
        await delivery.drain()
        assert values_of(sink.batches) == [1.0]


async def test_batches_that_cannot_be_split_are_given_up_and_the_next_is_delivered() -> None:
    batching = {"min_size": 1, "max_size": 1}
    async with delivering(sending_queue={"num_consumers": 1, "batch": batching}) as (delivery, sink, _):
        delivery.queue.put(Batch.encoded("metrics", b"no OTLP", 2))
        delivery.queue.put(batch_of(1.0))
        await delivery.drain()
        assert (values_of(sink.batches), delivery.lost) == ([1.0], 2)


async def test_without_retries_one_failure_drops_the_batch() -> None:
    async with delivering(retry_on_failure={"enabled": False}) as (delivery, sink, _):
        sink.failures = [Retryable("busy")]
        delivery.queue.put(batch_of(1.0))
        await delivery.drain()
        assert (sink.attempts, delivery.lost) == (1, 1)


async def test_an_attempt_ends_at_its_timeout_and_is_retried() -> None:
    async with delivering(timeout="10ms") as (delivery, sink, _):
        sink.gate = asyncio.Event()
        delivery.queue.put(batch_of(1.0))
        await until(lambda: sink.attempts >= 2)
        sink.gate.set()
        await delivery.drain()
        assert values_of(sink.batches) == [1.0]
