"""rotel accepts our requests and forwards every point and span to a sink."""

import asyncio
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from typing import Any

import numpy as np
import pytest
from opentelemetry.proto.trace.v1.trace_pb2 import Span

from otel_zernel.batch import Batch
from otel_zernel.errors import Correctable
from otel_zernel.otlp.points import Descriptor, Scope, Series, encode_point_attributes, encode_resource
from otel_zernel.testing import make_context
from otel_zernel_exporters.otlp import OtlpGrpcExporter, OtlpHttpExporter
from otel_zernel_exporters.otlp.config import OtlpGrpcConfig, OtlpHttpConfig
from otel_zernel_libraries.arrays import KnownSeries
from tests.interop.rotel import LAST_BIT, Rotel, spans_of, values_of, without_zstd
from tests.otlp import traces


def made() -> Batch:
    """A scrape of 1,000 series with different values."""
    gauge, resource, scope = Descriptor("hw.power", "W"), encode_resource({"host.name": "node-1"}), Scope("test")
    attributes = (encode_point_attributes({"hw.id": f"GPU-{index}"}) for index in range(1000))
    series = KnownSeries([Series(resource, scope, gauge, attribute) for attribute in attributes])
    return Batch.from_bytes(metrics=series.encode(np.linspace(0.1, 700, 1000), 1_700_000_000_000_000_000))


def steps() -> Batch:
    """A trace of ten nested steps."""
    spans = [
        Span(
            trace_id=bytes(range(16)),
            span_id=bytes([index] * 8),
            parent_span_id=bytes([index - 1] * 8) if index > 1 else b"",
            name=f"step {index}",
            start_time_unix_nano=1_700_000_000_000_000_000 + index,
            end_time_unix_nano=1_700_000_000_000_000_500 + index,
            links=[Span.Link(trace_id=bytes(range(16, 32)), span_id=bytes(range(8)))],
        )
        for index in range(1, 11)
    ]
    return Batch(spans=traces(*spans))


async def arrived(rotel: Rotel, metrics: Batch, spans: Batch, tolerance: float = 0.0) -> None:
    """Waits for everything and compares it; `tolerance` is relative."""
    async with asyncio.timeout(60):
        while len(rotel.values()) < metrics.point_count or rotel.spans().total() < spans.count_of("traces"):
            await rotel.sink.next()
    assert rotel.values() == pytest.approx(values_of(metrics.bytes_of("metrics")), rel=tolerance, abs=0)
    assert rotel.spans() == spans_of(spans.spans)


SENDERS: dict[str, Any] = {"grpc": (OtlpGrpcExporter, OtlpGrpcConfig), "http": (OtlpHttpExporter, OtlpHttpConfig)}


@asynccontextmanager
async def sending(protocol: str, url: str, settings: Mapping[str, Any]) -> AsyncIterator[Any]:
    """Our exporter to the address."""
    kind, configured = SENDERS[protocol]
    config = configured.model_validate({"endpoint": url, **settings})
    async with kind(config, make_context("exporters", f"otlp_{protocol}")) as exporter:
        yield exporter


async def send(protocol: str, url: str, settings: Mapping[str, Any], *batches: Batch) -> None:
    async with sending(protocol, url, settings) as exporter:
        for batch in batches:
            await exporter.export(batch)


@pytest.mark.parametrize("compression", ["gzip", "none"])
async def test_every_point_and_span_arrives_by_grpc(rotel: Rotel, compression: str) -> None:
    metrics, spans = made(), steps()
    await send("grpc", f"http://{rotel.grpc}", {"compression": compression}, metrics, spans)
    await arrived(rotel, metrics, spans)


@pytest.mark.parametrize("encoding", ["proto", "json"])
@pytest.mark.parametrize("compression", ["gzip", "none", "zstd"])
async def test_every_point_and_span_arrives_by_http(rotel: Rotel, encoding: str, compression: str) -> None:
    metrics, spans, settings = made(), steps(), {"encoding": encoding, "compression": compression}
    async with without_zstd(f"http://{rotel.http}") as gateway:
        url = gateway if compression == "zstd" else f"http://{rotel.http}"
        await send("http", url, settings, metrics, spans)
    await arrived(rotel, metrics, spans, LAST_BIT[encoding])


async def test_a_compression_that_rotel_does_not_have_keeps_the_batch_and_is_named(rotel: Rotel) -> None:
    with pytest.raises(Correctable, match=r"UNIMPLEMENTED: Content is compressed with `deflate`.*set compression"):
        await send("grpc", f"http://{rotel.grpc}", {"compression": "deflate"}, steps())
