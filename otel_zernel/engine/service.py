"""One running configuration: start, supervision, shutdown. Downstream starts first and stops last."""

import asyncio
import logging
from collections.abc import Sequence
from contextlib import AsyncExitStack
from dataclasses import dataclass

from otel_zernel.batch import ItemCount
from otel_zernel.clock import Clock, SystemClock
from otel_zernel.config.schema import Settings
from otel_zernel.engine.graph import Graph
from otel_zernel.engine.lifetime import cancel_and_wait, opened
from otel_zernel.errors import CannotStart
from otel_zernel.telemetry import Instruments
from otel_zernel.telemetry.readers import metering

_logger = logging.getLogger("otel_zernel.engine.service")


@dataclass(frozen=True, slots=True)
class Outcome:
    """The result of a service: zeros if all data was received and delivered."""

    undelivered: int
    """Items that were accepted, and neither delivered nor given up."""
    lost: int
    """Items that exporters gave up."""
    failed_receivers: int = 0
    """Receivers with a problem at the end."""

    @property
    def complete(self) -> bool:
        """Whether all data was received and delivered."""
        return self.undelivered == self.lost == self.failed_receivers == 0


class Service:
    """Runs a validated configuration until it is stopped."""

    def __init__(self, settings: Settings, clock: Clock | None = None) -> None:
        self._settings = settings
        self._clock = clock or SystemClock()
        self.graph: Graph | None = None

    async def run(self, stop: asyncio.Event, *, exit_when_done: bool = False) -> Outcome:
        """Runs until `stop` is set. With `exit_when_done`, also ends when all receivers have finished and all queues
        are empty.

        Raises `CannotStart` with one line for each component that cannot start.
        """
        async with AsyncExitStack() as stack:
            meters = await stack.enter_async_context(metering(self._settings.telemetry, self._clock))
            instruments = Instruments(meters.get_meter("otel_zernel"))
            instruments.watch_process(self._clock)
            self.graph = graph = Graph(self._settings, meters, instruments, self._clock)
            for extension in graph.extensions.values():
                await stack.enter_async_context(opened(extension, extension.context.path))
            for delivery in graph.deliveries.values():
                await stack.enter_async_context(opened(delivery, delivery.exporter.context.path))
            return await self._work(graph, stop, exit_when_done)

    def undelivered(self) -> dict[str, ItemCount]:
        """The items that each exporter has not delivered, by its id. Empty if all is delivered."""
        if self.graph is None:
            return {}
        waiting = {id_: delivery.undelivered() for id_, delivery in self.graph.deliveries.items()}
        return {id_: count for id_, count in waiting.items() if count.total}

    async def _work(self, graph: Graph, stop: asyncio.Event, exit_when_done: bool) -> Outcome:
        receivers = [asyncio.create_task(receiver.run(), name=receiver.context.path) for receiver in graph.receivers]
        finished = asyncio.create_task(_finished(receivers))
        ticks = [
            asyncio.create_task(pipeline.run_ticks(), name=f"service::pipelines::{id_}")
            for id_, pipeline in graph.pipelines.items()
        ]
        graph.health.available(self._clock.time_ns())
        _logger.info("Everything is ready. Begin running and processing data.")
        try:
            await _until(finished, stop)
            if not exit_when_done and not stop.is_set():
                _logger.info("Every receiver has finished; the collector stays up until it is stopped.")
                await stop.wait()
        except CannotStart:
            log_undelivered(self)
            raise
        finally:
            graph.health.unavailable()
            await cancel_and_wait([finished, *receivers])
            await cancel_and_wait(ticks)
        return await self._shut_down(graph, stop)

    async def _shut_down(self, graph: Graph, stop: asyncio.Event) -> Outcome:
        """Delivers the remaining batches. If `stop` is set, or as soon as it is, `shutdown_timeout` limits the time."""
        timeout = self._settings.shutdown_timeout
        limit = f" for at most {timeout:g} s" if stop.is_set() else ""
        _logger.info("Stopping: delivering the queued batches%s.", limit)
        draining = asyncio.create_task(_drain(graph), name="draining")
        await _until(draining, stop)
        await asyncio.wait({draining}, timeout=timeout)
        await cancel_and_wait([draining])
        log_undelivered(self)
        for receiver in graph.receivers:
            _logger.info("Receiver %s: accepted %s.", receiver.context.id, receiver.fan_out.accepted)
        for id_, delivery in graph.deliveries.items():
            if delivery.lost:
                _logger.error("Exporter %s dropped %d items since its start.", id_, delivery.lost)
        waiting = sum(count.total for count in self.undelivered().values())
        lost = sum(delivery.lost for delivery in graph.deliveries.values())
        failed = sum(receiver.context.path in graph.health.problems for receiver in graph.receivers)
        return Outcome(waiting, lost, failed)


def log_undelivered(service: Service) -> None:
    """Logs the number of undelivered items of each exporter."""
    for id_, count in service.undelivered().items():
        _logger.error("Exporter %s could not deliver %s.", id_, count)
    for id_, delivery in service.graph.deliveries.items() if service.graph else ():
        if (stored := delivery.stored()).total:
            _logger.info("Exporter %s keeps %s on the disk; they are delivered after the next start.", id_, stored)


async def _finished(receivers: Sequence[asyncio.Task[None]]) -> None:
    """Returns when all receivers have finished. Raises one `CannotStart` for all that cannot start."""
    done, _ = await asyncio.wait(receivers, return_when=asyncio.FIRST_EXCEPTION)
    if failed := [error for task in done if (error := task.exception())]:
        raise CannotStart("\n".join(map(str, failed)))


async def _drain(graph: Graph) -> None:
    await asyncio.gather(*(pipeline.flush() for pipeline in graph.pipelines.values()))
    await asyncio.gather(*(delivery.drain() for delivery in graph.deliveries.values()))


async def _until(work: asyncio.Task[None], stop: asyncio.Event) -> None:
    """Returns when the work is done or `stop` is set. Raises the exception of the work."""
    stopping = asyncio.create_task(stop.wait())
    try:
        await asyncio.wait({work, stopping}, return_when=asyncio.FIRST_COMPLETED)
        if work.done():
            work.result()
    finally:
        stopping.cancel()
