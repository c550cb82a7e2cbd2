"""A heartbeat receiver and its HTTP routes in a process of their own: prints their ports, and serves until killed."""

import asyncio
import json
import logging

import uvloop

from otel_zernel.api.testing import FakeApiServer
from otel_zernel.batch import Batch
from otel_zernel.clock import SystemClock
from otel_zernel.net.serving import serve
from otel_zernel.testing import make_context, until
from otel_zernel.types import Address
from otel_zernel_receivers.heartbeat import HeartbeatReceiver


async def discard(batch: Batch, *, transport: str = "") -> None:
    """The end of the pipelines."""


async def main() -> None:
    logging.disable()  # the probes send more than a queue holds
    api = FakeApiServer()
    config = HeartbeatReceiver.Config.model_validate({"endpoint": "127.0.0.1:0", "api": "api"})
    receiver = HeartbeatReceiver(config, make_context(clock=SystemClock(), extensions={"api": api}))
    running = asyncio.create_task(receiver.run(discard))
    await until(lambda: receiver.address or running.done())
    async with serve(api.app, Address("127.0.0.1", 0), "benchmark") as address:
        print(json.dumps([receiver.address.port if receiver.address else 0, address.port]), flush=True)
        await running


if __name__ == "__main__":
    uvloop.run(main())
