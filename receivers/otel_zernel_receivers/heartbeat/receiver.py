"""The heartbeat receiver."""

import asyncio
import contextlib
from collections import Counter
from typing import TYPE_CHECKING, Any, Final

from otel_zernel.component import Context, Emit, Receiver
from otel_zernel.types import Address
from otel_zernel_libraries.extras import missing_packages
from otel_zernel_receivers.heartbeat.config import HeartbeatReceiverConfig
from otel_zernel_receivers.heartbeat.declared import CLIENTS, HEARTBEATS, REFUSED

if TYPE_CHECKING:  # a list of components does without it
    from otel_zernel_receivers.heartbeat.fleet.fleet import Fleet

_SWEEP: Final = 1.0
"""Seconds between two checks for silent workers. A check of 10,000 takes 1 ms."""
_KEPT: Final = "fleet"


class HeartbeatReceiver(Receiver):
    """Takes the heartbeats of workers over gRPC, and serves their state over HTTP and WebSocket."""

    Config = HeartbeatReceiverConfig
    stability = "beta"
    signals = frozenset({"metrics"})
    serves = True
    config: HeartbeatReceiverConfig

    @classmethod
    def missing(cls) -> str | None:
        return missing_packages("the heartbeat receiver", "websockets")

    def __init__(self, config: HeartbeatReceiverConfig, context: Context) -> None:
        super().__init__(config, context)
        self.address: Address | None = None
        """Where the receiver listens, with the actual port, while it runs."""
        self._received = context.meter.create_counter(*HEARTBEATS.counter)
        self._refused = context.meter.create_counter(*REFUSED.counter)
        self._clients = context.meter.create_up_down_counter(*CLIENTS.counter)
        self._warned: set[str] = set()

    async def run(self, emit: Emit) -> None:
        """Serves until cancelled. The state of the workers outlives a reload."""
        from otel_zernel_receivers.heartbeat.fleet.emission import Emission
        from otel_zernel_receivers.heartbeat.grpc.methods import HeartbeatCounts
        from otel_zernel_receivers.heartbeat.grpc.server import serve_workers

        fleet, counts = self._fleet(), HeartbeatCounts()
        emission = Emission(fleet, self.context.clock, self.context.drop)
        async with contextlib.AsyncExitStack() as stack:
            serving = self._serve_routes(fleet, stack)
            self.address = await stack.enter_async_context(serve_workers(self.config, self.context, fleet, counts))
            self.context.logger.info("Listening for heartbeats on %s", self.address)
            self.context.listening.set()
            async with asyncio.TaskGroup() as group:
                group.create_task(self._sweep(fleet, counts), name="heartbeat sweep")
                group.create_task(self._emit(emission, emit), name="heartbeat emission")
                for running in serving:
                    group.create_task(running(), name="heartbeat routes")

    def _fleet(self) -> "Fleet":
        """The workers of the instance before a reload, or none."""
        from otel_zernel_receivers.heartbeat.fleet.fleet import Fleet

        kept: Any = self.context.kept.get(_KEPT)
        if isinstance(kept, Fleet):
            kept.resume(self.config)
            return kept
        fleet = self.context.kept[_KEPT] = Fleet(self.config, self.context.clock)
        return fleet

    def _serve_routes(self, fleet: "Fleet", stack: contextlib.AsyncExitStack) -> list[Any]:
        """Serves the routes while the stack is open. Returns the tasks to run meanwhile."""
        if self.config.api is None:
            return []
        from otel_zernel_libraries.serving.api.server import api_server
        from otel_zernel_receivers.heartbeat.http.body import all_listed, all_telemetry
        from otel_zernel_receivers.heartbeat.http.feed import WorkerFeed
        from otel_zernel_receivers.heartbeat.http.routes import FleetApi

        server = api_server(self.config.api, self.context, f"{self.context.path}::api")
        clock = self.context.clock
        telemetry, listed = all_telemetry(fleet, clock), all_listed(fleet, clock)
        feed = WorkerFeed(
            fleet,
            telemetry,
            clock,
            push_interval=self.config.push_interval,
            max_clients=self.config.max_clients,
            drop=self.context.drop,
            count_clients=self._clients.add,
        )
        api = FleetApi(fleet, telemetry, listed, feed)
        stack.enter_context(server.serve(self.context.path, api.routes()))
        return [feed.run, telemetry.run, listed.run]

    async def _sweep(self, fleet: "Fleet", counts: Any) -> None:
        while True:
            await self.context.clock.sleep(_SWEEP)
            while fleet.sweep():
                await self.context.clock.sleep(0)
            self._count(fleet, counts)

    async def _emit(self, emission: Any, emit: Emit) -> None:
        while True:
            await self.context.clock.sleep(self.config.collection_interval)
            await emission.emit(emit)

    def _count(self, fleet: "Fleet", counts: Any) -> None:
        for reason, count in fleet.take_dropped().items():
            self.context.drop(count, reason)
            if reason not in self._warned:
                self._warned.add(reason)
                self.context.logger.warning("%s", _ADVICE[reason])
        for method, count in counts.received.items():
            self._received.add(count, {"method": method})
        for reason, count in counts.refused.items():
            self._refused.add(count, {"reason": reason})
        counts.received, counts.refused = Counter(), Counter()


_ADVICE: Final = {
    "queue_full": "A worker sends more than queue_size heartbeats in collection_interval; the oldest are dropped.",
    "too_many_tasks": "A worker has more than max_tasks running tasks; the rest is dropped.",
    "too_many_workers": "There are more than max_workers workers; new ones are refused until one is inactive.",
    "taken": "A client sends for a worker of another client, and is refused; give each worker its own worker_id.",
    "unknown_worker": "A worker that has not registered is refused, since unknown_workers is refuse.",
}
