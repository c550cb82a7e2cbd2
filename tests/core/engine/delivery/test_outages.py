"""A backend that is down for ten minutes, slow, throttles or resets loses nothing that fits into the queue.

An exporter that delivers nothing is in the health and in the log, once, and so is the end of the outage.
"""

import asyncio
import logging
import random
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from functools import partial
from typing import Any

import pytest

from otel_zernel.batch import ALL_SIGNALS, ItemCount
from otel_zernel.engine.delivery import Delivery
from otel_zernel.engine.delivery.sending import OutageWatch
from otel_zernel.engine.pipelines.fan_out import FanOut
from otel_zernel.engine.pipelines.holding import HoldWatch
from otel_zernel.engine.pipelines.pipeline import Pipeline
from otel_zernel.errors import Correctable, Permanent, Refused, Retryable
from otel_zernel.testing import FakeClock, make_context
from tests.core.engine.delivery.delivering import DURABLE, delivering_into
from tests.core.engine.delivery.simulated import Answer, SimulatedBackend, SimulatedClock
from tests.core.parts import batch_of, values_of

OUTAGE = 600
"""Seconds; one batch a second is emitted."""


def sometimes(error: Retryable) -> Answer:
    """Half of the requests fail."""
    seeded = random.Random(7)
    return lambda: error if seeded.random() < 0.5 else None


FAULTS: dict[str, Answer] = {
    "down": lambda: Retryable("connection refused"),
    "503 with Retry-After": lambda: Retryable("503 Service Unavailable", after=60.0),
    "429 with Retry-After": lambda: Retryable("429 Too Many Requests", after=7.0),
    "every other request": sometimes(Retryable("502 Bad Gateway")),
}


@asynccontextmanager
async def collector(
    fault: Answer, durable: bool, queue_size: int = 10_000
) -> AsyncIterator[tuple[FanOut, SimulatedBackend, Delivery, SimulatedClock]]:
    clock = SimulatedClock()
    queue = {"queue_size": queue_size, **(DURABLE if durable else {})}
    retry = {} if durable else {"max_elapsed_time": "0s"}
    config: dict[str, Any] = {"timeout": "0s", "sending_queue": queue, "retry_on_failure": retry}
    async with delivering_into(SimulatedBackend, clock, **config) as (delivery, backend, counted):
        backend.fault = fault
        pipeline = Pipeline("p", [], [delivery], ALL_SIGNALS, asyncio.Lock())
        yield FanOut([pipeline], partial(counted.instruments.receiver, "source")), backend, delivery, clock


@pytest.mark.parametrize("durable", [False, True], ids=["memory", "durable"])
@pytest.mark.parametrize("fault", FAULTS.values(), ids=FAULTS.keys())
async def test_an_outage_of_ten_minutes_loses_nothing_that_fits_into_the_queue(fault: Answer, durable: bool) -> None:
    async with collector(fault, durable) as (emit, backend, delivery, clock):
        for second in range(OUTAGE):
            emitting = asyncio.create_task(emit(batch_of(float(second))))
            await clock.run_until(second + 1.0)
            await emitting
        await clock.run_until(OUTAGE + 300.0)
        assert sorted(values_of(backend.batches)) == list(range(OUTAGE))
        assert delivery.lost == 0


@pytest.mark.parametrize("durable", [False, True], ids=["memory", "durable"])
async def test_beyond_the_size_of_the_queue_the_source_is_refused_and_keeps_its_data(durable: bool) -> None:
    async with collector(FAULTS["down"], durable, queue_size=100) as (emit, backend, delivery, clock):
        refused = []
        for second in range(OUTAGE):
            emitting = asyncio.create_task(emit(batch_of(float(second))))
            await clock.run_until(second + 1.0)
            try:
                await emitting
            except Refused:
                refused.append(float(second))
        await clock.run_until(OUTAGE + 300.0)
        assert len(refused) == OUTAGE - 100 - 10  # the queue and the ten consumers
        assert sorted(values_of(backend.batches) + refused) == list(range(OUTAGE))
        assert delivery.lost == 0


async def test_a_slow_backend_gets_everything_in_its_time() -> None:
    async with collector(lambda: None, durable=False) as (emit, backend, delivery, clock):
        backend.latency = 15.0  # ten consumers send two batches in three seconds; three arrive in that time
        for second in range(OUTAGE):
            await emit(batch_of(float(second)))
            await clock.run_until(second + 1.0)
        assert len(backend.batches) < OUTAGE * 0.7
        await clock.run_until(OUTAGE + 400.0)
        assert sorted(values_of(backend.batches)) == list(range(OUTAGE))
        assert delivery.lost == 0


@pytest.mark.parametrize(("name", "pause"), [("503 with Retry-After", 60.0), ("429 with Retry-After", 7.0)])
async def test_no_attempt_is_repeated_sooner_than_the_server_asks(name: str, pause: float) -> None:
    async with collector(FAULTS[name], durable=True) as (emit, backend, _, clock):
        emitting = asyncio.create_task(emit(batch_of(1.0)))
        await clock.run_until(OUTAGE + 100.0)
        await emitting
        gaps = [later - sooner for sooner, later in zip(backend.times, backend.times[1:], strict=False)]
        assert min(gaps) >= pause
        assert len(backend.batches) == 1


async def test_by_default_a_queue_in_memory_gives_up_after_five_minutes_and_counts_it() -> None:
    clock = SimulatedClock()
    async with delivering_into(SimulatedBackend, clock, timeout=0.0) as (delivery, backend, counted):
        backend.fault = FAULTS["down"]
        delivery.queue.put(batch_of(1.0, 2.0))
        await clock.run_until(OUTAGE)
        assert delivery.lost == counted("otelcol_exporter_send_failed_metric_points") == 2
        assert 250 < backend.times[-1] <= 300


def test_a_long_outage_is_a_line_a_minute_and_its_end_has_its_length(caplog: pytest.LogCaptureFixture) -> None:
    clock = FakeClock()
    context = make_context("exporters", "sink", clock=clock)
    watch = OutageWatch(context, lambda: ItemCount(points=1204))
    with caplog.at_level(logging.INFO, "otel_zernel"):
        for _ in range(36):
            watch.failed(Retryable("Connection refused"), 5.0)
            clock.advance(5.0)
        assert "has delivered nothing for 3 m" in context.health.sentences(clock.monotonic())["exporters::sink"]
        watch.delivered()
        watch.delivered()
    assert caplog.messages == [
        "Export failed; retrying in 5.0 s: Connection refused",
        "Export failed; retrying in 5.0 s: Connection refused (12 times since the last line)",
        "Export failed; retrying in 5.0 s: Connection refused (12 times since the last line)",
        "The exporter works again after 3 m; 1,204 metric points are waiting.",
    ]
    assert context.health.sentences(clock.monotonic()) == {}


def test_another_reason_is_logged_at_once(caplog: pytest.LogCaptureFixture) -> None:
    watch = OutageWatch(make_context("exporters", "sink"), ItemCount)
    for reason in ("Connection refused", "503", "Connection refused"):
        watch.failed(Retryable(reason), 5.0)
    assert len(caplog.messages) == 2


def test_answers_with_one_code_are_one_line_which_says_how_long_the_data_are_kept(
    caplog: pytest.LogCaptureFixture,
) -> None:
    context = make_context("exporters", "sink")
    watch = OutageWatch(context, lambda: ItemCount(points=1204), longest=300.0)
    for number in range(20):
        watch.failed(Correctable(f"401: token {number} is expired", "401"), 5.0)
    watch.failed(Correctable("404: no such path", "404"), 5.0)
    assert caplog.messages == [
        "The server does not take the data, which are kept for at most 5 m: 401: token 0 is expired",
        "The server does not take the data, which are kept for at most 5 m: 404: no such path",
    ]
    problem = context.health.sentences(context.clock.monotonic())["exporters::sink"]
    assert "404: no such path; the data are kept for at most 5 m; 1,204 metric points are waiting" in problem


def test_one_rejected_batch_among_others_is_no_outage_in_the_log(caplog: pytest.LogCaptureFixture) -> None:
    context = make_context("exporters", "sink")
    watch = OutageWatch(context, ItemCount)
    with caplog.at_level(logging.INFO, "otel_zernel"):
        watch.given_up(Permanent("400"))
        assert context.health.outages
        watch.delivered()
    assert (caplog.messages, context.health.outages) == ([], {})


def test_a_receiver_that_is_held_back_is_logged_once_and_so_is_the_end(caplog: pytest.LogCaptureFixture) -> None:
    clock = FakeClock()
    context = make_context("receivers", "source", clock=clock)
    watch = HoldWatch(context)
    with caplog.at_level(logging.INFO, "otel_zernel"):
        for _ in range(80):
            watch.held_back("sending queue is full: otlp")
            clock.advance(0.5)
        assert context.health.sentences(clock.monotonic()) == {
            "receivers::source": "held back for 40 s: sending queue is full: otlp"
        }
        watch.accepted()
    assert caplog.messages == [
        "The receiver is held back: sending queue is full: otlp",
        "The receiver's batches are accepted again after 40 s, in which 80 attempts were refused.",
    ]
    assert not watch.is_holding
