"""One configuration at work: start, supervise, stop. Downstream starts first and stops last."""

import asyncio
import logging
from contextlib import AsyncExitStack
from dataclasses import dataclass

from otel_zernel.clock import Clock, SystemClock
from otel_zernel.config.schema import Settings
from otel_zernel.errors import CannotStart
from otel_zernel.graph import Graph
from otel_zernel.telemetry import Instruments
from otel_zernel.telemetry.readers import metering

_logger = logging.getLogger("otel_zernel.service")


@dataclass(frozen=True, slots=True)
class Outcome:
    """What a service left behind: items that were still undelivered at its end, and items given up on the way."""

    undelivered: int
    lost: int

    @property
    def complete(self) -> bool:
        """Whether everything that was received has been delivered."""
        return self.undelivered == self.lost == 0


class Service:
    """Runs a validated configuration until told to stop."""

    def __init__(self, settings: Settings, clock: Clock | None = None) -> None:
        self._settings = settings
        self._clock = clock or SystemClock()
        self.graph: Graph | None = None

    async def run(self, stop: asyncio.Event, *, exit_when_done: bool = False) -> Outcome:
        """Runs until `stop` is set or, with `exit_when_done`, every receiver has finished and the queues are empty.

        Raises `CannotStart` with a sentence for each component that cannot.
        """
        async with AsyncExitStack() as stack:
            meters = await stack.enter_async_context(metering(self._settings.telemetry))
            instruments = Instruments(meters.get_meter("otel_zernel"))
            instruments.watch_process(self._clock)
            self.graph = graph = Graph(self._settings, meters, instruments, self._clock)
            for extension in graph.extensions:
                await stack.enter_async_context(extension)
            for delivery in graph.deliveries.values():
                await stack.enter_async_context(delivery)
            return await self._work(graph, stop, exit_when_done)

    def undelivered(self) -> dict[str, tuple[int, int]]:
        """Metric points and spans that each exporter has not delivered yet."""
        if self.graph is None:
            return {}
        waiting = {id_: delivery.undelivered() for id_, delivery in self.graph.deliveries.items()}
        return {id_: (batch.point_count, batch.span_count) for id_, batch in waiting.items() if batch.item_count}

    async def _work(self, graph: Graph, stop: asyncio.Event, exit_when_done: bool) -> Outcome:
        receivers = asyncio.create_task(_run_receivers(graph))
        ticks = [asyncio.create_task(pipeline.run_ticks()) for pipeline in graph.pipelines.values()]
        graph.health.available()
        _logger.info("Everything is ready. Begin running and processing data.")
        try:
            finished = await _until_stopped(receivers, stop, exit_when_done)
        finally:
            graph.health.unavailable()
            await _cancel(receivers)
            await _cancel(*ticks)
        return await self._shut_down(graph, None if finished else self._settings.shutdown_timeout)

    async def _shut_down(self, graph: Graph, within: float | None) -> Outcome:
        _logger.info("Stopping: delivering what is queued%s.", f", for at most {within:g} s" if within else "")
        try:
            async with asyncio.timeout(within):
                for pipeline in graph.pipelines.values():
                    await pipeline.flush()
                await asyncio.gather(*(delivery.drain() for delivery in graph.deliveries.values()))
        except TimeoutError:
            log_undelivered(self)
        for receiver in graph.receivers:
            points, spans = receiver.entrance.accepted_points, receiver.entrance.accepted_spans
            _logger.info("Receiver %s: accepted %d metric points and %d spans.", receiver.context.id, points, spans)
        waiting = sum(sum(counts) for counts in self.undelivered().values())
        return Outcome(waiting, sum(delivery.lost for delivery in graph.deliveries.values()))


def log_undelivered(service: Service) -> None:
    """Says, for each exporter, what it could not deliver."""
    for id_, (points, spans) in service.undelivered().items():
        _logger.error("Exporter %s could not deliver %d metric points and %d spans.", id_, points, spans)


async def _run_receivers(graph: Graph) -> None:
    try:
        async with asyncio.TaskGroup() as group:
            for receiver in graph.receivers:
                group.create_task(receiver.run(), name=receiver.context.path)
    except* CannotStart as failed:
        raise CannotStart("\n".join(map(str, failed.exceptions))) from None


async def _until_stopped(receivers: asyncio.Task[None], stop: asyncio.Event, exit_when_done: bool) -> bool:
    """Whether the receivers have finished by themselves. Raises what made them fail."""
    stopping = asyncio.create_task(stop.wait())
    try:
        await asyncio.wait({receivers, stopping}, return_when=asyncio.FIRST_COMPLETED)
        if receivers.done():
            receivers.result()
            if not exit_when_done and not stopping.done():
                _logger.info("Every receiver has finished; the collector stays up until it is stopped.")
                await stopping
                return False
        return receivers.done()
    finally:
        stopping.cancel()


async def _cancel(*tasks: asyncio.Task[None]) -> None:
    for task in tasks:
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)
