"""A gateway as clients reach it: the api and query extensions on a store with some of everything, in a thread."""

import asyncio
import threading
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import Future
from contextlib import AsyncExitStack, contextmanager
from pathlib import Path
from typing import Any

from opentelemetry.proto.metrics.v1.metrics_pb2 import Metric

from otel_zernel.clock import SystemClock
from otel_zernel.component import Extension
from otel_zernel.testing import make_context
from otel_zernel_extensions.query import QueryExtension
from otel_zernel_extensions.query.config import QueryConfig
from otel_zernel_libraries.store.config import WritableStoreConfig
from tests.extensions.api.serving import running
from tests.extensions.query.serving import BEGIN, SECOND, counter, gauge, serving
from tests.libraries.store.given import sqlite_config

PATIENCE = 120.0
"""Seconds for an answer on a busy machine."""
Started = Future[tuple[str, Callable[[], object]]]
"""The URL, and a function that stops the server."""


@contextmanager
def gateway(folder: Path, extensions: Mapping[str, Extension] | None = None, **api: Any) -> Iterator[str]:
    """Yields the URL of the server. `api` are options of the api extension."""
    settings = sqlite_config(folder, synchronous="normal")
    started: Started = Future()
    thread = threading.Thread(target=lambda: asyncio.run(_served(settings, extensions or {}, api, started)))
    thread.start()
    base, stop = started.result(PATIENCE)
    try:
        yield base
    finally:
        stop()
        thread.join()


async def _served(
    settings: WritableStoreConfig,
    extensions: Mapping[str, Extension],
    options: Mapping[str, Any],
    started: Started,
) -> None:
    try:
        async with AsyncExitStack() as stack:
            await fill(settings)
            for extension in extensions.values():
                await stack.enter_async_context(extension)
            api = await stack.enter_async_context(running(extensions=extensions, rate_limit=None, **options))
            context = make_context("extensions", "query", clock=SystemClock(), extensions={"api": api})
            config = QueryConfig.model_validate({"url": settings.url})
            await stack.enter_async_context(QueryExtension(config, context))
            stop, loop = asyncio.Event(), asyncio.get_running_loop()
            started.set_result((f"http://{api.address}", lambda: loop.call_soon_threadsafe(stop.set)))
            await stop.wait()
    except BaseException as error:
        if not started.done():
            started.set_exception(error)
        raise


async def fill(settings: WritableStoreConfig) -> None:
    """Stores gauges with all kinds of values, a counter, histograms and a summary, of two hosts."""
    values = [1.0, -2.5, float("nan"), float("inf"), 1e308]
    async with serving(settings) as served:
        for host in ("n1", "n2"):
            await served.write(
                gauge("hw.power", values, hw_id=f"GPU-{host}"),
                counter("requests", [5, 9, 3]),
                *distributions(),
                host_name=host,
                hw_model="H100 'x' \"y\"",
            )


def distributions() -> Iterator[Metric]:
    """A histogram, an exponential histogram and a summary with one point each."""
    classic, exponential, summary = Metric(name="latency"), Metric(name="wait"), Metric(name="quantiles")
    classic.histogram.aggregation_temporality = 2  # type: ignore[assignment]
    classic.histogram.data_points.add(
        time_unix_nano=BEGIN,
        start_time_unix_nano=BEGIN - SECOND,
        count=3,
        sum=4.0,
        bucket_counts=[1, 2],
        explicit_bounds=[1.0],
    )
    exponential.exponential_histogram.aggregation_temporality = 1  # type: ignore[assignment]
    point = exponential.exponential_histogram.data_points.add(
        time_unix_nano=BEGIN, count=3, sum=4.0, scale=2, zero_count=1
    )
    point.positive.offset = -3
    point.positive.bucket_counts.extend([1, 0, 1])
    last = summary.summary.data_points.add(time_unix_nano=BEGIN, count=2, sum=5.0)
    last.quantile_values.add(quantile=0.5, value=2.0)
    yield from (classic, exponential, summary)
