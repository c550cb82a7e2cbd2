"""An HTTP exporter, and a server that gives one answer."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

from starlette.responses import Response

from otel_zernel.component import Context
from otel_zernel.testing import make_context
from otel_zernel_exporters.otlp import OtlpHttpExporter
from otel_zernel_exporters.otlp.config import OtlpHttpConfig
from tests.exporters.otlp.peers import HttpSink

PROTO = "application/x-protobuf"


def context() -> Context:
    return make_context("exporters", "otlp_http")


@asynccontextmanager
async def exporting(sink: HttpSink, own: Context | None = None, **options: Any) -> AsyncIterator[OtlpHttpExporter]:
    async with sink.serve() as url:
        config = OtlpHttpConfig.model_validate({"endpoint": url, **options})
        async with OtlpHttpExporter(config, own or context()) as exporter:
            yield exporter


def answering(*answers: Response) -> HttpSink:
    sink = HttpSink()
    sink.answers.extend(answers)
    return sink
