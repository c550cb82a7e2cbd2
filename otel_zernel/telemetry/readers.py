"""The readers of the collector's own metrics: a page for scrapes, or an OTLP endpoint.

The SDK and its exporters cost memory, so they are imported only if they are configured.
"""

import logging
import threading
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from typing import TYPE_CHECKING
from uuid import uuid4

from opentelemetry.metrics import MeterProvider, NoOpMeterProvider

from otel_zernel import __version__
from otel_zernel.clock import Clock
from otel_zernel.config.telemetry import OtlpPush, PeriodicReader, PrometheusPull, TelemetrySettings
from otel_zernel.exposition import Format, Options, Page, metrics_app
from otel_zernel.net.serving import serve
from otel_zernel.types import Address

if TYPE_CHECKING:
    from opentelemetry.sdk.metrics.export import InMemoryMetricReader, MetricExporter, MetricReader

_logger = logging.getLogger("otel_zernel.telemetry")


@asynccontextmanager
async def metering(settings: TelemetrySettings, clock: Clock) -> AsyncIterator[MeterProvider]:
    """A meter provider with the configured readers. The readers work until the context exits.

    Raises `CannotStart` if the address of a page cannot be used.
    """
    readers = settings.metrics.readers if settings.metrics.level != "none" else []
    if not readers:
        yield NoOpMeterProvider()
        return

    from opentelemetry.sdk.metrics import MeterProvider as SdkMeterProvider
    from opentelemetry.sdk.metrics.export import InMemoryMetricReader
    from opentelemetry.sdk.resources import Resource

    identity = {"service.name": "otel-zernel", "service.version": __version__, "service.instance.id": str(uuid4())}
    pages = [(one.pull.exporter.prometheus, InMemoryMetricReader()) for one in readers if one.pull]
    pushed: list[MetricReader] = [_periodic(one.periodic) for one in readers if one.periodic]
    provider = SdkMeterProvider(
        metric_readers=[*(reader for _, reader in pages), *pushed],
        resource=Resource.create({**identity, **settings.resource}),
        shutdown_on_exit=False,
    )
    async with AsyncExitStack() as stack:
        stack.callback(provider.shutdown, timeout_millis=2_000)
        for page, reader in pages:
            await stack.enter_async_context(_served(page, reader, clock))
        yield provider


@asynccontextmanager
async def _served(page: PrometheusPull, reader: "InMemoryMetricReader", clock: Clock) -> AsyncIterator[Address]:
    from opentelemetry.exporter.otlp.proto.common.metrics_encoder import encode_metrics
    from opentelemetry.proto.metrics.v1.metrics_pb2 import MetricsData

    # As on the OpenTelemetry Collector's own page, names have no unit and no `_total`.
    options = Options(
        translation_strategy="UnderscoreEscapingWithoutSuffixes", without_scope_info=True, target_labels=False
    )
    exposed = Page(options, warn=_logger.warning)
    turn = threading.Lock()

    def render(format_: Format) -> bytes:
        with turn:  # else a page could show an older collection after a newer one
            now = clock.monotonic()
            if collected := reader.get_metrics_data():
                metrics = MetricsData.FromString(encode_metrics(collected).SerializeToString())
                exposed.update(metrics, now, clock.time_ns())
            return exposed.render(format_, now)

    setting = "service::telemetry::metrics::readers"
    async with serve(metrics_app(render), Address(page.host, page.port), setting) as address:
        _logger.info("Serving the collector's own metrics on http://%s/metrics", address)
        yield address


def _periodic(settings: PeriodicReader) -> "MetricReader":
    from opentelemetry.sdk.metrics.export import PeriodicExportingMetricReader

    exporter = _otlp_exporter(settings.exporter.otlp)
    return PeriodicExportingMetricReader(exporter, settings.interval * 1000, settings.timeout * 1000)


def _otlp_exporter(settings: OtlpPush) -> "MetricExporter":
    headers = {name: value.get_secret_value() for name, value in settings.headers.items()}
    if settings.protocol == "grpc":
        from opentelemetry.exporter.otlp.proto.grpc.metric_exporter import OTLPMetricExporter as GrpcExporter

        return GrpcExporter(settings.endpoint, insecure=settings.insecure or None, headers=headers)
    from opentelemetry.exporter.otlp.proto.http.metric_exporter import OTLPMetricExporter as HttpExporter

    return HttpExporter(settings.endpoint, headers=headers)
