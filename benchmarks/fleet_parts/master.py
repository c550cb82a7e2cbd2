"""A heartbeat receiver and its HTTP routes in a process of their own: prints their ports, and serves until killed.

At SIGUSR1, it prints the times since the last signal in ms: from the read of a heartbeat to the write of its answer.
"""

import asyncio
import json
import logging
import signal
import time

import uvloop

from benchmarks.fleet_parts.workers import quantile
from otel_zernel.batch import Batch
from otel_zernel.clock import SystemClock
from otel_zernel.testing import make_context, until
from otel_zernel_extensions.api import ApiExtension
from otel_zernel_libraries.serving.http2 import server
from otel_zernel_libraries.serving.http2.server import Http2Connection
from otel_zernel_receivers.heartbeat import HeartbeatReceiver
from otel_zernel_receivers.heartbeat.fleet.fleet import Fleet

_times: list[float] = []
_fleet: list[Fleet] = []


class TimedConnection(Http2Connection):
    """A connection that measures the handling of heartbeats: from the first read to the write of the answer."""

    _read_at = 0.0
    _before = 0

    def data_received(self, data: bytes) -> None:
        if not self._read_at:
            self._read_at, self._before = time.perf_counter(), _fleet[0].changes.sequence
        super().data_received(data)

    def _write_all(self) -> None:
        super()._write_all()
        if self._read_at and _fleet[0].changes.sequence != self._before:
            _times.append((time.perf_counter() - self._read_at) * 1e3)
        self._read_at = 0.0


def print_times() -> None:
    """The quantiles since the last call."""
    found = sorted(_times)
    _times.clear()
    print(json.dumps({"count": len(found), "p50": quantile(found, 0.5), "p99": quantile(found, 0.99)}), flush=True)


async def discard(batch: Batch, *, transport: str = "") -> None:
    """The end of the pipelines."""


async def main() -> None:
    logging.disable()  # the probes send more than a queue holds
    server.Http2Connection = TimedConnection  # type: ignore[misc]  # the server measures nothing itself
    asyncio.get_running_loop().add_signal_handler(signal.SIGUSR1, print_times)
    api_config = ApiExtension.Config.model_validate({"endpoint": "127.0.0.1:0"})
    api = ApiExtension(api_config, make_context("extensions", "api", clock=SystemClock()))
    config = HeartbeatReceiver.Config.model_validate({"endpoint": "127.0.0.1:0", "api": "api"})
    receiver = HeartbeatReceiver(config, make_context(clock=SystemClock(), extensions={"api": api}))
    async with api:
        running = asyncio.create_task(receiver.run(discard))
        await until(lambda: receiver.address or running.done())
        _fleet.append(receiver.context.kept["fleet"])
        ports = [address.port for address in (receiver.address, api.address) if address]
        print(json.dumps(ports), flush=True)
        await running


if __name__ == "__main__":
    uvloop.run(main())
