"""Exporters of the tests, with a context that counts losses."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

from otel_zernel.testing import Dropped, make_context
from otel_zernel_exporters.prometheusremotewrite import PrometheusRemoteWriteExporter


@asynccontextmanager
async def exporter(url: str, **config: Any) -> AsyncIterator[tuple[PrometheusRemoteWriteExporter, Dropped]]:
    settings = PrometheusRemoteWriteExporter.Config.model_validate({"endpoint": url, **config})
    context = make_context("exporters", "prometheusremotewrite")
    dropped = context.drop
    assert isinstance(dropped, Dropped)
    async with PrometheusRemoteWriteExporter(settings, context) as one:
        yield one, dropped


V1 = {"protobuf_message": "prometheus.WriteRequest"}
