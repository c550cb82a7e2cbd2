"""The metrics of a target arrive in the order of the queue, whatever fails and however many consumers send."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import pytest

from otel_zernel.batch import ALL_SIGNALS, Batch
from otel_zernel.engine.delivery import Delivery
from otel_zernel.engine.delivery.consumers import PATIENCE
from otel_zernel.engine.delivery.turns import TargetTurns
from otel_zernel.engine.queues import Request
from otel_zernel.engine.queues.requests import grouped
from otel_zernel.errors import Permanent, Retryable
from tests.core.engine.delivery.delivering import DURABLE, delivering_into
from tests.core.engine.delivery.simulated import SimulatedBackend, SimulatedClock, eventually
from tests.core.parts import one_span, values_of
from tests.otlp import data, gauge, number, profiles

OUTAGE = 60


class OrderedBackend(SimulatedBackend):
    in_order = True
    repaired = 0.0

    def __init__(self, *arguments: Any) -> None:
        super().__init__(*arguments)
        self.at_once = 0
        self.most_at_once = 0

    async def export(self, batch: Batch) -> None:
        self.at_once += 1
        self.most_at_once = max(self.most_at_once, self.at_once)
        try:
            await super().export(batch)
        finally:
            self.at_once -= 1


@asynccontextmanager
async def ordered(
    durable: bool = False, **queue: Any
) -> AsyncIterator[tuple[Delivery, OrderedBackend, SimulatedClock]]:
    clock = SimulatedClock()
    settings = {"queue_size": 10_000, **(DURABLE if durable else {}), **queue}
    config: dict[str, Any] = {
        "timeout": "0s",
        "sending_queue": settings,
        "retry_on_failure": {"max_elapsed_time": "0s"},
    }
    async with delivering_into(OrderedBackend, clock, **config) as (delivery, backend, _):
        yield delivery, backend, clock


def metrics_of(value: float, target: str = "node", **attributes: str) -> Batch:
    """A batch with one gauge point."""
    resource = {"service.name": "train", "service.instance.id": target, **attributes}
    message = data(gauge("g", number(value)), resource=resource)
    return Batch.from_bytes(metrics=message.SerializeToString())


@pytest.mark.parametrize("durable", [False, True], ids=["memory", "durable"])
async def test_after_an_outage_ten_consumers_deliver_in_order(durable: bool) -> None:
    async with ordered(durable) as (delivery, backend, clock):
        backend.fault, backend.repaired = lambda: Retryable("connection refused"), OUTAGE
        for second in range(3 * OUTAGE):
            delivery.queue.put(metrics_of(float(second)))
            await clock.run_until(second + 1.0)
        await clock.run_until(4.0 * OUTAGE)
        assert values_of(backend.batches) == list(range(3 * OUTAGE))
        assert delivery.lost == 0


async def test_no_batch_overtakes_another_of_its_target_if_the_server_comes_back_just_after_an_attempt() -> None:
    async with ordered() as (delivery, backend, clock):

        def fault() -> Retryable:
            if clock.now > 3 * PATIENCE:
                backend.repaired = clock.now  # this attempt still fails
            return Retryable("503 Service Unavailable")

        backend.fault, backend.repaired = fault, 10 * PATIENCE
        for value in range(30):
            delivery.queue.put(metrics_of(float(value), target=str(value % 3)))
        await clock.run_until(5 * PATIENCE)
        for target in range(3):
            values = [value for value in values_of(backend.batches) if value % 3 == target]
            assert values == list(range(target, 30, 3))
        assert delivery.lost == 0


async def test_other_attributes_of_the_target_do_not_change_its_order() -> None:
    async with ordered() as (delivery, backend, clock):
        backend.fault, backend.repaired = lambda: Retryable("connection refused"), OUTAGE
        for second in range(OUTAGE):
            delivery.queue.put(
                metrics_of(float(second), **({"host.name": "a"} if second % 2 else {"k8s.pod.name": "b"}))
            )
        await clock.run_until(3.0 * OUTAGE)
        assert values_of(backend.batches) == list(range(OUTAGE))


async def test_metrics_of_other_targets_are_sent_at_the_same_time() -> None:
    async with ordered() as (delivery, backend, clock):
        backend.latency = 5.0
        for number in range(10):
            delivery.queue.put(metrics_of(float(number), target=str(number)))
        await clock.run_until(6.0)
        assert backend.most_at_once == 10
        assert len(backend.batches) == 10


async def test_spans_do_not_wait_for_each_other() -> None:
    async with ordered() as (delivery, backend, clock):
        backend.latency = 5.0
        for _ in range(10):
            delivery.queue.put(one_span())
        await clock.run_until(6.0)
        assert backend.most_at_once == 10


async def test_slow_answers_cost_no_throughput() -> None:
    async with ordered() as (delivery, backend, clock):
        backend.latency = 1.0
        for tenth in range(600):
            delivery.queue.put(metrics_of(float(tenth)))
            await clock.run_until((tenth + 1) / 10)
        await clock.run_until(63.0)
        assert values_of(backend.batches) == list(range(600))
        assert backend.most_at_once == 1


async def test_what_joined_while_it_waited_is_rejected_alone() -> None:
    class Picky(OrderedBackend):
        async def export(self, batch: Batch) -> None:
            await super().export(batch)
            if 7.0 in values_of([batch]):
                self.batches.remove(batch)
                raise Permanent("400 Bad Request")

    clock = SimulatedClock()
    async with delivering_into(Picky, clock, timeout=0.0) as (delivery, backend, _):
        for number in range(10):
            delivery.queue.put(metrics_of(float(number)))
        await eventually(clock, lambda: delivery.lost and 9.0 in values_of(backend.batches), before=600)
        assert values_of(backend.batches) == [0, 1, 2, 3, 4, 5, 6, 8, 9]
        assert delivery.lost == 1


async def test_requests_that_a_reload_interrupts_keep_their_place() -> None:
    async with ordered() as (delivery, backend, clock):
        backend.fault, backend.repaired = lambda: Retryable("connection refused"), OUTAGE
        for number in range(20):
            delivery.queue.put(metrics_of(float(number), target=str(number % 3)))
        await clock.run_until(30.0)
        await asyncio.gather(delivery.settle(), clock.run_until(31.0))
        waiting = [lease.batch for lease in delivery.queue.take_all()]
        assert values_of(waiting) == list(range(20))


async def test_other_tasks_run_while_thousands_of_targets_are_read() -> None:
    turns = TargetTurns(needed=True)
    many = Batch.join([metrics_of(1.0, target=str(number)) for number in range(2000)])
    adding = asyncio.create_task(turns.add([Request(many)]))
    await asyncio.sleep(0)
    assert not adding.done(), "a thread reads them"
    await adding
    turn = turns.next((), join=True)
    assert turn is not None
    assert len(turn.targets) == 2000


@pytest.mark.parametrize("durable", [False, True], ids=["memory", "durable"])
async def test_profiles_that_wait_together_arrive_as_they_came(durable: bool) -> None:
    async with ordered(durable, batch={"min_size": 1, "max_size": 3}) as (delivery, backend, clock):
        backend.signals = ALL_SIGNALS
        backend.fault, backend.repaired = lambda: Retryable("connection refused"), OUTAGE
        sent = [profiles(*range(count)).SerializeToString() for count in range(1, 6)]
        for encoded in sent:
            delivery.queue.put(Batch.from_bytes(profiles=encoded))
            delivery.queue.put(Batch(metrics=metrics_of(1.0).metrics))
        await clock.run_until(4.0 * OUTAGE)
        arrived = [batch.bytes_of("profiles") for batch in backend.batches if batch.count_of("profiles")]
        assert sorted(arrived) == sorted(sent)
        assert delivery.lost == 0


def test_a_request_with_profiles_is_a_group_of_its_own() -> None:
    metrics, stacks = metrics_of(1.0), Batch(profiles=profiles(1))
    requests = [Request(batch) for batch in (metrics, metrics, stacks, metrics, metrics, stacks, stacks)]
    assert [len(group) for group in grouped(requests, 0)] == [2, 1, 2, 1, 1]
