"""A delivery exports every batch that it accepts, or counts it as lost.

The settings of a delivery have the Collector's defaults, and contradictory ones are refused.

An exporter is stuck when it fails for all of its consumers, or settles nothing for a while; success ends that.
"""

import asyncio
import time
from itertools import islice
from types import SimpleNamespace
from typing import Any

import pytest
from opentelemetry.metrics import NoOpMeter

from otel_zernel.batch import Batch, ItemCount
from otel_zernel.clock import SystemClock
from otel_zernel.delivery_config import LOCAL, RemoteExporterConfig, RetryConfig
from otel_zernel.engine.delivery import Delivery
from otel_zernel.engine.delivery.sending import LAST_ATTEMPT, LONGEST_PAUSE, Progress, backoff
from otel_zernel.errors import Permanent, Retryable
from otel_zernel.telemetry import Instruments
from otel_zernel.testing import FakeClock, make_context, until
from tests.core.engine.delivery.delivering import delivering
from tests.core.engine.wiring import RecordingQueue, losses_of, requests_of
from tests.core.parts import Sink, SinkConfig, batch_of, values_of


async def test_queued_batches_are_delivered_in_order_and_counted() -> None:
    async with delivering(sending_queue={"num_consumers": 1}) as (delivery, sink, counted):
        for value in (1.0, 2.0, 3.0):
            delivery.queue.put(batch_of(value))
        await delivery.drain()
        assert values_of(sink.batches) == [1.0, 2.0, 3.0]
        assert counted("otelcol_exporter_sent_metric_points") == 3


async def test_an_exporter_is_entered_before_and_left_after_its_batches() -> None:
    async with delivering() as (delivery, sink, _):
        assert sink.entered
        delivery.queue.put(batch_of(1.0))
        await delivery.drain()
        assert not sink.left
    assert sink.left


async def test_a_full_queue_has_no_room_until_an_entry_leaves() -> None:
    async with delivering(sending_queue={"num_consumers": 1, "queue_size": 2}) as (delivery, sink, counted):
        sink.gate = asyncio.Event()
        delivery.queue.put(batch_of(1.0))
        await until(lambda: sink.attempts)
        delivery.queue.put(batch_of(2.0))
        delivery.queue.put(batch_of(3.0))
        assert not delivery.queue.has_room(batch_of(4.0))
        assert (counted("otelcol_exporter_queue_size"), counted("otelcol_exporter_queue_capacity")) == (2, 2)
        room = asyncio.create_task(delivery.wait_for_room())
        await asyncio.sleep(0)
        sink.gate.set()
        await room
        assert delivery.queue.has_room(batch_of(4.0))


async def test_batching_joins_waiting_batches_into_one_request() -> None:
    batching = {"min_size": 3, "flush_timeout": "1h"}
    async with delivering(sending_queue={"batch": batching}) as (delivery, sink, _):
        for value in range(7):
            delivery.queue.put(batch_of(float(value)))
        await delivery.drain()
        assert [values_of([batch]) for batch in sink.batches] == [[0, 1, 2], [3, 4, 5], [6]]


async def test_batching_splits_a_batch_that_is_larger_than_max_size() -> None:
    batching = {"min_size": 1, "max_size": 2}
    async with delivering(sending_queue={"num_consumers": 1, "batch": batching}) as (delivery, sink, _):
        delivery.queue.put(batch_of(1.0, 2.0, 3.0))
        await delivery.drain()
        assert [values_of([batch]) for batch in sink.batches] == [[1, 2], [3]]


async def test_a_batch_smaller_than_min_size_is_sent_after_flush_timeout() -> None:
    batching = {"min_size": 100, "flush_timeout": "1ms"}
    async with delivering(sending_queue={"batch": batching}) as (delivery, sink, _):
        delivery.queue.put(batch_of(1.0))
        await until(lambda: sink.batches)
        assert values_of(sink.batches) == [1.0]


async def test_queued_batches_and_batches_in_flight_count_as_undelivered() -> None:
    async with delivering(sending_queue={"num_consumers": 1}) as (delivery, sink, _):
        sink.gate = asyncio.Event()
        delivery.queue.put(batch_of(1.0, 2.0))
        delivery.queue.put(batch_of(3.0))
        await until(lambda: sink.attempts)
        assert delivery.undelivered() == ItemCount(points=3)


async def test_sent_pieces_of_a_batch_do_not_count_as_undelivered() -> None:
    batching = {"min_size": 1, "max_size": 1}
    async with delivering(sending_queue={"num_consumers": 1, "batch": batching}) as (delivery, sink, _):
        sink.gate = SimpleNamespace(wait=asyncio.Semaphore(1).acquire)  # lets one export pass
        delivery.queue.put(batch_of(1.0, 2.0, 3.0))
        await until(lambda: sink.attempts == 2)
        assert delivery.undelivered() == ItemCount(points=2)


async def test_entries_that_are_in_flight_when_the_consumers_end_return_to_the_queue_in_order() -> None:
    batching = {"min_size": 2, "max_size": 2, "flush_timeout": "1h"}
    async with delivering(sending_queue={"num_consumers": 1, "batch": batching}) as (delivery, sink, _):
        sink.gate = asyncio.Event()
        for value in (1.0, 2.0, 3.0):
            delivery.queue.put(batch_of(value))
        await until(lambda: sink.attempts)
        delivery.queue.put(batch_of(4.0))
    assert delivery.undelivered() == ItemCount(points=4)
    assert values_of(request.batch for request in requests_of(delivery.queue)) == [1.0, 2.0, 3.0, 4.0]


async def test_an_entry_of_a_consumer_that_fails_unexpectedly_is_delivered_by_another() -> None:
    failures = [RuntimeError("a bug")]

    def count_sent(_: Batch) -> None:
        if failures:
            raise failures.pop()

    sink = Sink(SinkConfig.model_validate({"sending_queue": {"num_consumers": 2}}), make_context("exporters", "sink"))
    metrics = Instruments(NoOpMeter("test")).exporter("sink")._replace(sent=count_sent)  # type: ignore[arg-type]  # only called
    async with Delivery(sink, metrics) as delivery:
        delivery.queue.put(batch_of(1.0))
        async with asyncio.timeout(60):
            await delivery.drain()
    assert (sink.attempts, delivery.undelivered()) == (2, ItemCount())


async def test_another_queue_may_start_with_entries_and_removes_what_is_delivered_or_dropped() -> None:
    queue = RecordingQueue()
    queue.put(batch_of(1.0))
    sink = Sink(SinkConfig.model_validate({"sending_queue": {"num_consumers": 1}}), make_context("exporters", "sink"))
    sink.failures = [Permanent("never")]
    async with Delivery(sink, Instruments(NoOpMeter("test")).exporter("sink"), queue) as delivery:
        delivery.queue.put(batch_of(2.0))
        await delivery.drain()
    assert (values_of(sink.batches), queue.removed, delivery.lost) == ([2.0], [1.0, 2.0], 1)


async def test_draining_ends_the_wait_for_the_next_attempt() -> None:
    clock = SystemClock()
    async with delivering(clock, retry_on_failure={"initial_interval": "1h", "max_elapsed_time": "0s"}) as it:
        delivery, sink, _ = it
        sink.failures = [Retryable("down", after=3600.0)]
        delivery.queue.put(batch_of(1.0))
        await until(lambda: sink.attempts)
        async with asyncio.timeout(60):
            await delivery.drain()
        assert values_of(sink.batches) == [1.0]


async def test_draining_may_begin_at_the_moment_when_the_flush_timeout_ends() -> None:
    batching = {"min_size": 100, "flush_timeout": "1ms"}
    async with delivering(sending_queue={"num_consumers": 1, "batch": batching}) as (delivery, sink, _):
        begun = asyncio.get_running_loop().create_future()

        def begin() -> None:
            draining = delivery.drain()
            begun.set_result(draining.send(None))  # runs its first step in this iteration of the loop
            draining.close()

        delivery.queue.put(batch_of(1.0))
        await asyncio.sleep(0)
        time.sleep(0.002)  # noqa: ASYNC251  # both timers are due in one iteration of the loop, the flush timeout first
        asyncio.get_running_loop().call_later(0, begin)
        await until(begun.done)
        await delivery.drain()
        assert values_of(sink.batches) == [1.0]


async def test_without_a_queue_send_returns_whether_the_batch_was_delivered() -> None:
    async with delivering(sending_queue={"enabled": False}) as (delivery, sink, counted):
        sink.failures = [Permanent("no")]
        assert not await delivery.send(batch_of(1.0))
        assert await delivery.send(batch_of(2.0))
        assert delivery.direct
        assert counted("otelcol_exporter_queue_capacity") == 0


async def test_an_attempt_without_an_answer_names_the_server_and_the_timeout(caplog: pytest.LogCaptureFixture) -> None:
    url = "http://user:secret@backend:4317/in?key=1"
    retry = {"enabled": False}
    async with delivering(timeout="1ms", endpoint=url, retry_on_failure=retry) as (delivery, sink, _):
        sink.gate = asyncio.Event()
        delivery.queue.put(batch_of(1.0))
        await until(lambda: "no answer" in caplog.text)
    assert "no answer from http://backend:4317/in?[REDACTED] within the timeout of 0.001 s" in caplog.text


async def test_a_cancelled_send_without_a_queue_is_counted_as_lost() -> None:
    async with delivering(sending_queue={"enabled": False}) as (delivery, sink, counted):
        sink.gate = asyncio.Event()
        sending = delivery.send(batch_of(1.0, 2.0))
        await until(lambda: sink.attempts)
        sending.cancel()
        with pytest.raises(asyncio.CancelledError):
            await sending
        assert (delivery.lost, counted("otelcol_exporter_send_failed_metric_points")) == (2, 2)
        assert losses_of(sink) == {"exporter_stopped": 2}
        assert delivery.undelivered() == ItemCount(points=0)


async def test_a_batch_without_a_queue_that_waits_for_an_exporter_that_a_reload_removes_is_counted_once() -> None:
    async with delivering(sending_queue={"enabled": False}) as (delivery, sink, counted):
        await delivery.settle()
        sending = delivery.send(batch_of(1.0, 2.0))
        await asyncio.sleep(0)
        assert delivery.dismiss() == ItemCount()
        assert not await sending
        assert (delivery.lost, counted("otelcol_exporter_send_failed_metric_points")) == (2, 2)
        assert losses_of(sink) == {"exporter_stopped": 2}


async def test_a_stop_plans_no_attempt_after_its_deadline_and_the_last_one_is_just_before_it() -> None:
    async with delivering(sending_queue={"num_consumers": 1}) as (delivery, sink, _):
        clock = sink.context.clock
        sink.is_down = True
        for value in (1.0, 2.0, 3.0):
            delivery.queue.put(batch_of(value))
        delivery.consumers.hurry(clock.monotonic() + 20.0)
        await delivery.drain()
        assert 20.0 - 2 * LAST_ATTEMPT <= clock.monotonic() <= 20.0
        assert (delivery.undelivered().points, delivery.lost, delivery.problem) == (3, 0, "down")


async def test_a_stop_does_not_wait_for_a_server_that_asks_for_more_time_than_is_left() -> None:
    async with delivering(sending_queue={"num_consumers": 1}) as (delivery, sink, _):
        sink.failures = [Retryable("throttled", after=60.0)]
        delivery.queue.put(batch_of(1.0))
        delivery.consumers.hurry(sink.context.clock.monotonic() + 20.0)
        await delivery.drain()
        assert (sink.attempts, sink.context.clock.monotonic(), delivery.undelivered().points) == (1, 0.0, 1)


async def test_a_batch_without_a_queue_is_counted_as_lost_if_a_stop_leaves_no_time() -> None:
    async with delivering(sending_queue={"enabled": False}) as (delivery, sink, _):
        sink.is_down = True
        delivery.consumers.hurry(sink.context.clock.monotonic() + 5.0)
        assert not await delivery.send(batch_of(1.0))
        assert losses_of(sink) == {"exporter_stopped": 1}


def test_backoff_grows_to_its_limit_within_the_randomization() -> None:
    delays = list(islice(backoff(RetryConfig()), 50))
    assert 2.5 <= delays[0] <= 7.5
    assert 3.75 <= delays[1] <= 11.25
    assert all(15 <= delay <= 45 for delay in delays[10:])


@pytest.mark.parametrize(
    ("config", "words"),
    [
        ({"sending_queue": {"batch": {"min_size": 10, "max_size": 5}}}, "max_size"),
        ({"sending_queue": {"queue_size": 0}}, "greater than or equal to 1"),
        ({"retry_on_failure": {"randomization_factor": 2}}, "less than or equal to 1"),
    ],
)
def test_contradictory_settings_are_refused(config: dict[str, Any], words: str) -> None:
    with pytest.raises(ValueError, match=words):
        RemoteExporterConfig.model_validate(config)


def test_the_defaults_are_the_collectors() -> None:
    config = RemoteExporterConfig()
    queue, retry = config.sending_queue, config.retry_on_failure
    assert (config.timeout, queue.num_consumers, queue.queue_size, queue.sizer) == (5.0, 10, 1000, "requests")
    assert (retry.initial_interval, retry.multiplier, retry.max_interval, retry.max_elapsed_time) == (5, 1.5, 30, 300)
    assert LOCAL.sending_queue.num_consumers == 1


def progress_of(consumers: int = 1) -> tuple[Progress, FakeClock]:
    clock = FakeClock()
    return Progress(consumers, clock.monotonic), clock


def test_an_exporter_is_stuck_when_as_many_attempts_failed_in_a_row_as_it_has_consumers() -> None:
    progress, _ = progress_of(consumers=3)
    for _ in range(3):
        assert not progress.is_stuck
        progress.begun()
        progress.failed()
    assert progress.is_stuck
    progress.settled()
    assert not progress.is_stuck


def test_an_exporter_that_hangs_is_stuck_after_a_while_until_it_settles_a_batch() -> None:
    progress, clock = progress_of()
    progress.begun()
    clock.advance(LONGEST_PAUSE)
    assert not progress.is_stuck
    clock.advance(0.1)
    assert progress.is_stuck
    progress.settled()
    progress.ended()
    assert not progress.is_stuck


def test_an_exporter_without_work_is_never_stuck() -> None:
    progress, clock = progress_of()
    clock.advance(1000)
    progress.begun()
    assert not progress.is_stuck
    progress.ended()
    progress.settled()
    clock.advance(1000)
    assert not progress.is_stuck
    progress.begun()
    assert not progress.is_stuck


def test_a_slow_exporter_that_settles_batches_is_not_stuck() -> None:
    progress, clock = progress_of(consumers=2)
    for _ in range(10):
        progress.begun()
    for _ in range(10):
        clock.advance(LONGEST_PAUSE - 1)
        progress.settled()
        progress.ended()
        assert not progress.is_stuck
