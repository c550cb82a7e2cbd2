"""A foreign server of a feed, and a zernel receiver that reads it."""

import json
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
from typing import Any

from websockets.asyncio.server import ServerConnection, serve

from otel_zernel.batch import Batch
from otel_zernel.clock import Clock, SystemClock
from otel_zernel.component import Context, Extension
from otel_zernel.testing import Downstream, make_context
from otel_zernel_receivers.zernel import ZernelReceiver
from tests.background import in_background
from tests.otlp import rows_in

WHOLE = {
    "gpu_utilization": [{"key": "7:0", "current_bytes": 5, "peak_bytes": 9}],
    "cuda_latency_p50_us": 7.5,
    "cuda_latency_p99_us": 80.0,
    "nccl_allreduce_p50_ms": 1.5,
    "nccl_allreduce_p99_ms": 9.0,
    "dataloader_wait_p50_ms": 2.5,
    "last_update_ms": 1_700_000_000_123,
}
Row = tuple[str, tuple[tuple[str, Any], ...], Any]
"""Metric, attributes, and the value: a number, the quantiles of a summary, or None for the end of a series."""


class ForeignFeed:
    """A server that sends the messages of its script to each client, and then waits or closes."""

    def __init__(self, *messages: Any, closes: bool = False) -> None:
        self.messages: Sequence[Any] = messages
        self.closes = closes
        self.clients = 0
        self.headers: list[Mapping[str, str]] = []
        self.open: set[ServerConnection] = set()

    async def __call__(self, connection: ServerConnection) -> None:
        self.clients += 1
        self.open.add(connection)
        assert connection.request
        self.headers.append(dict(connection.request.headers.raw_items()))
        for message in self.messages:
            await connection.send(message if isinstance(message, str | bytes) else json.dumps(message))
        if not self.closes:
            await connection.wait_closed()
        self.open.discard(connection)


@asynccontextmanager
async def serving(feed: ForeignFeed, port: int = 0, **options: Any) -> AsyncIterator[str]:
    """The URL of the feed."""
    async with serve(feed, "127.0.0.1", port, **options) as server:
        scheme = "wss" if options.get("ssl") else "ws"
        host = "localhost" if options.get("ssl") else "127.0.0.1"
        yield f"{scheme}://{host}:{next(iter(server.sockets)).getsockname()[1]}"


@asynccontextmanager
async def receiving(
    endpoint: str,
    *,
    clock: Clock | None = None,
    extensions: Mapping[str, Extension] | None = None,
    downstream: Downstream | None = None,
    **config: Any,
) -> AsyncIterator[tuple[Downstream, Context]]:
    """A running receiver."""
    context = make_context("receivers", "zernel", clock=clock or SystemClock(), extensions=extensions)
    fields = {"endpoint": endpoint, "initial_interval": "10ms", "max_interval": "100ms", **config}
    receiver = ZernelReceiver(ZernelReceiver.Config.model_validate(fields), context)
    received = downstream or Downstream()
    async with in_background(receiver.run(received)):
        yield received, context


def rows_of(batch: Batch) -> list[Row]:
    """The points of a batch."""
    return [(row.metric.name, tuple(row.attributes.items()), row.value) for row in rows_in(batch.metrics)]
