"""A page of the exporter that the receiver scrapes, and that is exported again, is the same page."""

from typing import Any

import httpx
import pytest
from google.protobuf.internal.decoder import _DecodeVarint  # type: ignore[attr-defined]
from opentelemetry.proto.metrics.v1.metrics_pb2 import MetricsData

from otel_zernel.batch import Batch
from otel_zernel.testing import make_context
from otel_zernel_exporters.prometheus import PrometheusExporter
from otel_zernel_libraries.prometheus.formats.messages import MetricFamilyMessage
from otel_zernel_receivers.prometheus.config.scrape import TEXT_PROTOCOLS
from otel_zernel_receivers.prometheus.pages.formats import accept_header
from otel_zernel_receivers.prometheus.pages.text import TextReader
from tests.interop.with_prometheus.scraped import (
    PROTOBUF,
    job,
    receiving,
    scrape_of,
)
from tests.otlp import data, exponential, node


@pytest.mark.parametrize(
    "settings",
    [
        {},
        {"enable_open_metrics": False},
        {"translation_strategy": "NoTranslation"},
        {"send_timestamps": True, "without_scope_info": True},
    ],
)
async def test_a_page_of_the_exporter_that_is_scraped_and_exported_is_the_same_page(settings: dict[str, Any]) -> None:
    async def page(exporter: PrometheusExporter) -> dict[bytes, tuple[str, int]]:
        """Each sample's value and time."""
        async with httpx.AsyncClient() as client:
            url = f"http://127.0.0.1:{exporter.address.port}/metrics"
            answer = await client.get(url, headers={"accept": accept_header(TEXT_PROTOCOLS)})
        is_openmetrics = "openmetrics" in answer.headers["content-type"]
        read = TextReader().read(answer.content, openmetrics=is_openmetrics, known=())
        return {
            key: (repr(value), read.times_ns.get(position, 0))
            for position, (key, value) in enumerate(zip(read.keys, read.values, strict=True))
            if isinstance(key, bytes)
        }

    async with exporter(settings) as first, exporter(settings) as second:
        await first.export(Batch(node()))
        async with receiving(None, job("first", first.address.port)) as downstream:
            await second.export(await scrape_of(downstream, first.address.port))
        before, after = await page(first), await page(second)
    assert len(before) > 20
    assert {key: value for key, value in after.items() if key in before} == before


def exponentials() -> MetricsData:
    """Exponential histograms of many forms: empty, with zeros, a threshold, negative values, 160 buckets."""
    some = (-3, [1, 0, 2, 5])
    metrics = (
        exponential("h.empty", 3),
        exponential("h.zeros", 3, zero_count=5, sum_=0.0),
        exponential("h.wide.zeros", 2, some, zero_count=5, zero_threshold=1e-3, sum_=9.0),
        exponential("h.negative", 3, some, (-4, [1, 0, 3]), zero_count=1),
        exponential("h.many", 3, (-80, [1] * 160), sum_=160.0),
        exponential("h.large", 0, (1020, [1, 0, 0, 1]), sum_=1e307),
    )
    return data(*metrics, resource={"service.name": "llm", "service.instance.id": "node-1"})


def histogram_families(body: bytes) -> list[bytes]:
    """The histograms of a page in the protobuf format, without the times since which they count."""
    families = []
    while body:
        size, start = _DecodeVarint(body, 0)
        family = MetricFamilyMessage.FromString(body[start : start + size])
        body = body[start + size :]
        for metric in family.metric:
            metric.histogram.ClearField("created_timestamp")
        if family.name.startswith("h_"):
            families.append(family.SerializeToString())
    return sorted(families)


async def test_a_native_histogram_of_the_exporter_that_is_scraped_and_exported_is_the_same_in_all_formats() -> None:
    async def pages(exporter: PrometheusExporter) -> tuple[list[str], list[bytes]]:
        """The histograms' lines in the text format, and their messages in the protobuf format."""
        async with httpx.AsyncClient() as client:
            url = f"http://127.0.0.1:{exporter.address.port}/metrics"
            text, encoded = [await client.get(url, headers={"accept": accept}) for accept in ("text/plain", PROTOBUF)]
        lines = [line for line in text.text.splitlines() if line.startswith("h_")]
        return lines, histogram_families(encoded.content)

    settings = {"without_scope_info": True}
    async with exporter(settings) as first, exporter(settings) as second:
        await first.export(Batch(exponentials()))
        native = job("first", first.address.port, scrape_native_histograms=True, honor_labels=True)
        async with receiving(None, native) as downstream:
            await second.export(await scrape_of(downstream, first.address.port))
        (lines, messages), again = await pages(first), await pages(second)
    assert len(messages) == 6
    assert 'h_zeros_seconds_bucket{instance="node-1",job="llm",le="0.0"} 5' in lines
    assert again == (lines, messages)


def exporter(settings: dict[str, Any]) -> PrometheusExporter:
    config = PrometheusExporter.Config.model_validate({"endpoint": "127.0.0.1:0", **settings})
    return PrometheusExporter(config, make_context("exporters", "prometheus"))
