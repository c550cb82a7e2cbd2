"""The readers of the collector's own metrics: a page for scrapes, or an OTLP endpoint.

The page is an entry point of `otel_zernel.metric_readers`: the core serves nothing. The SDK and its exporters cost
memory, so they are imported only if they are configured.
"""

import asyncio
import logging
from collections.abc import AsyncIterator, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager, suppress
from importlib.metadata import entry_points
from typing import TYPE_CHECKING

from otel_zernel.clock import Clock
from otel_zernel.config.telemetry import MetricReader, OtlpPush, PeriodicReader, PrometheusPull
from otel_zernel.errors import CannotStart

if TYPE_CHECKING:
    from opentelemetry.sdk.metrics.export import MetricExporter, MetricsData

Collect = Callable[[], "MetricsData | None"]
"""The present values of all instruments. None if there are none."""
ServePage = Callable[[PrometheusPull, Collect, Clock], AbstractAsyncContextManager[None]]
"""Serves a page until the context exits. Raises `CannotStart` if its address cannot be used."""

_LAST_PUSH = 2.0
"""Seconds that the last push may take when a reader ends."""

_logger = logging.getLogger("otel_zernel.telemetry")


@asynccontextmanager
async def reading(settings: MetricReader, collect: Collect, clock: Clock) -> AsyncIterator[None]:
    """One reader, which works until the context exits. Raises `CannotStart` if a page's address cannot be used."""
    if settings.pull:
        async with _page()(settings.pull.exporter.prometheus, collect, clock):
            yield
    elif settings.periodic:
        async with _pushed(settings.periodic, collect, clock):
            yield


def _page() -> ServePage:
    for point in entry_points(group="otel_zernel.metric_readers", name="prometheus"):
        serve: ServePage = point.load()
        return serve
    raise CannotStart("service::telemetry::metrics::readers: no package serves pages; install otel-zernel anew")


@asynccontextmanager
async def _pushed(settings: PeriodicReader, collect: Collect, clock: Clock) -> AsyncIterator[None]:
    exporter = _otlp_exporter(settings.exporter.otlp)
    collect()  # the start time of the sums is now

    async def push(longest: float) -> None:
        if collected := collect():
            await asyncio.to_thread(exporter.export, collected, longest * 1000)

    async def push_regularly() -> None:
        while True:
            await clock.sleep(settings.interval)
            try:
                await push(settings.timeout)
            except Exception as error:
                _logger.exception("Cannot push the collector's own metrics: %s: %s", type(error).__name__, error)

    pushing = asyncio.create_task(push_regularly(), name="service::telemetry::metrics::readers")
    try:
        yield
    finally:
        pushing.cancel()
        await asyncio.wait([pushing])
        with suppress(TimeoutError):
            async with asyncio.timeout(_LAST_PUSH):
                await push(_LAST_PUSH)
        await asyncio.to_thread(exporter.shutdown)


def _otlp_exporter(settings: OtlpPush) -> "MetricExporter":
    headers = {name: value.get_secret_value() for name, value in settings.headers.items()}
    if settings.protocol == "grpc":
        from opentelemetry.exporter.otlp.proto.grpc.metric_exporter import OTLPMetricExporter as GrpcExporter

        return GrpcExporter(settings.endpoint, insecure=settings.insecure or None, headers=headers)
    from opentelemetry.exporter.otlp.proto.http.metric_exporter import OTLPMetricExporter as HttpExporter

    return HttpExporter(settings.endpoint, headers=headers)
