"""The page of the collector's own metrics: the entry point `prometheus` of `otel_zernel.metric_readers`."""

import logging
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from otel_zernel.clock import Clock
from otel_zernel.config.telemetry import PrometheusPull
from otel_zernel.telemetry.readers import Collect
from otel_zernel.types import Address
from otel_zernel_libraries.prometheus.asgi import metrics_app
from otel_zernel_libraries.prometheus.formats import Format
from otel_zernel_libraries.prometheus.options import Options
from otel_zernel_libraries.prometheus.page import Page
from otel_zernel_libraries.serving.serving import serve

_logger = logging.getLogger("otel_zernel.telemetry")


@asynccontextmanager
async def served(page: PrometheusPull, collect: Collect, clock: Clock) -> AsyncIterator[None]:
    """Serves the page until the context exits. Raises `CannotStart` if its address cannot be used."""
    options = Options(
        translation_strategy=(
            "UnderscoreEscapingWithoutSuffixes" if page.without_units else "UnderscoreEscapingWithSuffixes"
        ),
        without_scope_info=page.without_scope_info,
        target_labels=False,
    )

    def render(format_: Format) -> bytes:
        from opentelemetry.exporter.otlp.proto.common.metrics_encoder import encode_metrics
        from opentelemetry.proto.metrics.v1.metrics_pb2 import MetricsData

        now = clock.monotonic()
        exposed = Page(options, warn=_logger.warning)  # a new one: the queue of a removed exporter is not shown again
        if collected := collect():
            exposed.update(MetricsData.FromString(encode_metrics(collected).SerializeToString()), now)
        return exposed.render(format_, now)

    setting = "service::telemetry::metrics::readers"
    async with serve(metrics_app(render), Address(page.host, page.port), setting) as address:
        _logger.info("Serving the collector's own metrics on http://%s/metrics", address)
        yield
