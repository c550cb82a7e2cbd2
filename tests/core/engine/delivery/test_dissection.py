"""A joined request that is rejected for good is taken apart: only its bad entries are lost, with bounded extra work."""

import random
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from opentelemetry.proto.metrics.v1.metrics_pb2 import MetricsData

from otel_zernel.batch import Batch
from otel_zernel.batch.mending import is_sound
from otel_zernel.engine.delivery import Delivery
from otel_zernel.engine.delivery.consumers import HOPELESS, MOST_REJECTIONS, Dissection
from otel_zernel.engine.delivery.sending import Failure
from otel_zernel.engine.queues import Request
from otel_zernel.errors import Correctable, Permanent, Retryable
from otel_zernel.testing import make_context
from tests.core.engine.wiring import Counting
from tests.core.parts import Sink, SinkConfig, batch_of, values_of

JOINING = {"sending_queue": {"num_consumers": 1, "batch": {"min_size": 1000, "flush_timeout": "1ms"}}}


class PickySink(Sink):
    """Rejects every request with a negative value, or all of them. `busy` attempts fail first."""

    all = False
    busy = 0

    async def export(self, batch: Batch) -> None:
        self.attempts += 1
        if self.busy:
            self.busy -= 1
            raise Retryable("busy")
        if self.all or any(value < 0 for value in values_of([batch])):
            raise Permanent("bad data")
        self.batches.append(batch)


def picky(**config: Any) -> PickySink:
    return PickySink(SinkConfig.model_validate({**JOINING, **config}), make_context("exporters", "sink"))


def damaged(points: int) -> Batch:
    """Bytes that the check on receipt accepts: an attribute is damaged."""
    good = batch_of(*[1.0] * points).bytes_of("metrics")
    batch = Batch.from_bytes(metrics=good.replace(b"host.name", b"\xffost.name"))
    assert batch.point_count == points
    return batch


async def deliver(sink: Sink, *batches: Batch) -> tuple[Delivery, Counting]:
    counted = Counting()
    async with Delivery(sink, counted.instruments.exporter("sink")) as delivery:
        for batch in batches:
            delivery.queue.put(batch)
        await delivery.drain()
    return delivery, counted


async def test_one_bad_entry_costs_only_itself() -> None:
    sink = picky()
    batches = [batch_of(float(value)) for value in range(50)]
    delivery, counted = await deliver(sink, *batches[:20], batch_of(-1.0, -2.0), *batches[20:])
    assert sorted(values_of(sink.batches)) == list(range(50))
    assert delivery.lost == counted("otelcol_exporter_send_failed_metric_points") == 2
    assert counted("otelcol_exporter_sent_metric_points") == 50
    assert sink.attempts <= 1 + 2 * 7  # each rejection halves the request


@pytest.mark.parametrize("refusal", [Permanent("400 Bad Request"), Correctable("500: crashed", "500")])
async def test_a_text_that_is_not_utf8_is_mended_for_a_server_that_refuses_it(refusal: Exception) -> None:
    class Strict(PickySink):
        async def export(self, batch: Batch) -> None:
            self.attempts += 1
            if not is_sound(MetricsData.DESCRIPTOR, batch.bytes_of("metrics")):
                raise refusal
            self.batches.append(batch)

    sink = Strict(SinkConfig.model_validate(JOINING), make_context("exporters", "sink"))
    delivery, counted = await deliver(sink, batch_of(1.0), damaged(3), batch_of(2.0))
    assert (values_of(sink.batches), delivery.lost) == ([1.0, 1.0, 1.0, 1.0, 2.0], 0)
    assert counted("otelcol_exporter_sent_metric_points") == 5
    assert sink.attempts == 2  # the joined request, and the mended one


async def test_a_server_that_takes_any_bytes_gets_those_of_the_sender() -> None:
    sink = Sink(SinkConfig.model_validate(JOINING), make_context("exporters", "sink"))
    await deliver(sink, damaged(3))
    assert [batch.bytes_of("metrics") for batch in sink.batches] == [damaged(3).bytes_of("metrics")]


async def test_a_server_that_rejects_everything_gets_a_bounded_number_of_requests() -> None:
    sink = picky()
    sink.all = True
    delivery, counted = await deliver(sink, *(batch_of(float(value)) for value in range(500)))
    assert delivery.lost == counted("otelcol_exporter_send_failed_metric_points") == 500
    assert sink.attempts <= 1 + HOPELESS


async def test_parts_of_a_rejected_request_are_retried_as_any_other() -> None:
    sink = picky()
    sink.busy = 3
    delivery, _ = await deliver(sink, batch_of(1.0), batch_of(-1.0), batch_of(2.0))
    assert (sorted(values_of(sink.batches)), delivery.lost) == ([1.0, 2.0], 1)


async def test_max_size_splits_only_entries_that_are_larger_than_a_request() -> None:
    sink = picky(sending_queue={"num_consumers": 1, "batch": {"min_size": 4, "max_size": 4, "flush_timeout": "1ms"}})
    await deliver(sink, batch_of(1.0, 2.0, 3.0), batch_of(4.0, 5.0), batch_of(*range(6, 16)))
    assert [values_of([batch]) for batch in sink.batches] == [
        *([1, 2, 3], [4, 5]),
        *([6, 7, 8, 9], [10, 11, 12, 13], [14, 15]),
    ]


@given(st.integers(2, 3000), st.integers(0, 40), st.integers())
def test_the_extra_requests_are_bounded_and_few_bad_parts_cost_nothing_else(parts: int, bad: int, seed: int) -> None:
    requests = [Request(Batch()) for _ in range(parts)]
    poisoned = set(random.Random(seed).sample(requests, min(bad, parts)))
    dissection, sends, settled = Dissection(requests), 0, list[Request]()
    while group := dissection.next_group():
        sends += 1
        outcome = Failure(Permanent("bad"), rejected=True) if poisoned.intersection(group) else None
        if not dissection.divides(group, outcome):
            settled += group
    settled += dissection.rest()
    assert len(settled) == len(set(settled)) == parts
    assert sends <= 2 * MOST_REJECTIONS + 2
    if len(poisoned) <= 4:
        assert not dissection.rest()


@pytest.mark.parametrize("after", [1e11, float("inf")])
async def test_a_server_cannot_stop_an_exporter_for_longer_than_the_ceiling(after: float) -> None:
    sink = picky(retry_on_failure={"max_elapsed_time": "0s"})
    sink.failures = []
    clock = sink.context.clock

    async def throttled(batch: Batch) -> None:
        if not sink.attempts:
            sink.attempts += 1
            raise Retryable("429 Too Many Requests", after=after)
        sink.batches.append(batch)

    sink.export = throttled  # type: ignore[method-assign]
    await deliver(sink, batch_of(1.0))
    assert values_of(sink.batches) == [1.0]
    assert clock.monotonic() == pytest.approx(300.0)
