"""Every accepted point is delivered, lost or undelivered, exactly once, whatever the exporters do."""

import asyncio
import random
from contextlib import AsyncExitStack, suppress
from functools import partial
from typing import Any

from hypothesis import given
from hypothesis import strategies as st
from opentelemetry.metrics import NoOpMeter

from otel_zernel.batch import Batch
from otel_zernel.clock import SystemClock
from otel_zernel.component import Context, Insist
from otel_zernel.engine.delivery import Delivery
from otel_zernel.engine.pipelines.fan_out import FanOut
from otel_zernel.engine.pipelines.pipeline import Pipeline
from otel_zernel.errors import Permanent, Refused, Rejected, Retryable
from otel_zernel.telemetry import Instruments
from otel_zernel.testing import make_context
from tests.core.parts import Sink, SinkConfig, batch_of, values_of

INSTRUMENTS = Instruments(NoOpMeter("test"))


class RandomSink(Sink):
    """A sink that succeeds, fails, hangs or cancels itself at random."""

    def __init__(self, config: SinkConfig, context: Context, seed: int) -> None:
        super().__init__(config, context)
        self.random = random.Random(seed)

    async def export(self, batch: Batch) -> None:
        chance = self.random.random()
        if chance < 0.3:
            await asyncio.sleep(self.random.random() / 1000)
        if chance < 0.1:
            raise Retryable("busy")
        if chance > 0.9:
            raise self.random.choice(
                [Permanent("never"), ValueError("a bug"), TimeoutError(), asyncio.CancelledError()]
            )
        if chance > 0.88:
            await asyncio.sleep(60)
        await super().export(batch)


queues = st.fixed_dictionaries(
    {
        "enabled": st.sampled_from([True, True, True, False]),
        "num_consumers": st.integers(1, 3),
        "queue_size": st.integers(1, 4),
        "block_on_overflow": st.booleans(),
        "batch": st.none()
        | st.fixed_dictionaries(
            {"min_size": st.integers(0, 4), "flush_timeout": st.just("1ms"), "max_size": st.just(0)}
        )
        | st.just({"min_size": 1, "max_size": 2, "flush_timeout": "1ms"}),
    }
)


def random_sink(queue: dict[str, Any], number: int, seed: int) -> RandomSink:
    retry = {"initial_interval": "1ms", "max_interval": "2ms", "max_elapsed_time": "20ms"}
    config = SinkConfig.model_validate({"timeout": "5ms", "sending_queue": queue, "retry_on_failure": retry})
    return RandomSink(config, make_context("exporters", f"sink/{number}", clock=SystemClock()), seed + number)


async def emit_all(fan_out: FanOut, first: int, insists: bool, rejected: list[float]) -> None:
    """Emits ten batches of three points. All values differ. Notes those that an exporter without a queue drops."""
    emit = Insist(fan_out, SystemClock(), wait=0.001) if insists else fan_out
    for value in range(first, first + 30, 3):
        points = [float(value + n) for n in range(3)]
        try:
            await emit(batch_of(*points))
        except Rejected:
            rejected += points
        except Refused:
            pass


async def _run(configs: list[dict[str, Any]], seed: int, insists: bool, stop_after: float) -> None:
    async with AsyncExitStack() as stack:
        sinks = [random_sink(queue, number, seed) for number, queue in enumerate(configs)]
        deliveries = [
            await stack.enter_async_context(Delivery(sink, INSTRUMENTS.exporter(sink.context.id))) for sink in sinks
        ]
        pipeline = Pipeline("p", [], deliveries, frozenset({"metrics"}), asyncio.Lock())
        fan_outs = [FanOut([pipeline], partial(INSTRUMENTS.receiver, "source")) for _ in range(3)]
        rejected: list[float] = []
        receivers = [
            asyncio.create_task(emit_all(fan_out, 100 * n, insists, rejected)) for n, fan_out in enumerate(fan_outs)
        ]
        await asyncio.wait(receivers, timeout=stop_after)
        for receiver in receivers:
            receiver.cancel()
        await asyncio.gather(*receivers, return_exceptions=True)
        with suppress(TimeoutError):
            async with asyncio.timeout(0.05):
                await asyncio.gather(*(delivery.drain() for delivery in deliveries))
        # Exporters with a queue may have what another one has dropped.
        accepted = sum(fan_out.accepted.points for fan_out in fan_outs) + len(rejected)
        for delivery, sink in zip(deliveries, sinks, strict=True):
            delivered = values_of(sink.batches)
            assert len(delivered) + delivery.lost + delivery.undelivered().points == accepted
            assert len(set(delivered)) == len(delivered)
            if not delivery.direct and sink.config.sending_queue.num_consumers == 1:
                ordered = [[value for value in delivered if value // 100 == n] for n in range(3)]
                assert ordered == [sorted(one) for one in ordered]


@given(st.lists(queues, min_size=1, max_size=3), st.integers(0, 2**32), st.booleans(), st.floats(0, 0.03))
def test_every_accepted_point_is_delivered_lost_or_undelivered(
    configs: list[dict[str, Any]], seed: int, insists: bool, stop_after: float
) -> None:
    asyncio.run(_run(configs, seed, insists, stop_after))
