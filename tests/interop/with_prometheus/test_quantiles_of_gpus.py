"""Quantiles over 8 GPUs: the collector's process, Prometheus, and PromQL give the quantiles of all values."""

from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import httpx
import pytest
from opentelemetry.proto.metrics.v1.metrics_pb2 import MetricsData

from tests.collectors import collector
from tests.interop.prometheus import Prometheus, scraping, until_ready
from tests.interop.with_prometheus.gpus import FAMILY, Gpus

Peer = Callable[[str], Path]
Ports = Callable[[], int]

QUANTILES = (0.5, 0.75, 0.85, 0.9, 0.95, 0.99)
GRID = 2 ** (1 / 4)
"""The ratio of two neighbouring bounds from 1 ms to 16 s."""
NATIVE = 2 ** (1 / 16)
"""A bound of the error of native buckets: the widest histogram of these GPUs has scale 5."""
REPORTED = Gpus(1864)
"""Moving bounds turned the p85 of 0.089 s of these GPUs into 0.120 s."""


@asynccontextmanager
async def gateway(
    folder: Path, ports: Ports, processors: Mapping[str, Any] = {}, **exporter: Any
) -> AsyncIterator[tuple[int, int]]:
    """A collector that receives OTLP by HTTP and serves a page; the ports of both."""
    otlp, page = ports(), ports()
    settings = {
        "receivers": {"otlp": {"protocols": {"http": {"endpoint": f"127.0.0.1:{otlp}"}}}},
        "processors": processors,
        "exporters": {"prometheus": {"endpoint": f"127.0.0.1:{page}", **exporter}},
        "service": {
            "telemetry": {"metrics": {"readers": []}},
            "pipelines": {
                "metrics": {"receivers": ["otlp"], "processors": list(processors), "exporters": ["prometheus"]}
            },
        },
    }
    async with collector(folder, settings):
        async with httpx.AsyncClient() as client:
            await until_ready(client, f"http://127.0.0.1:{page}/health")
        yield otlp, page


async def send(port: int, message: MetricsData) -> None:
    async with httpx.AsyncClient() as client:
        response = await client.post(
            f"http://127.0.0.1:{port}/v1/metrics",
            content=message.SerializeToString(),
            headers={"content-type": "application/x-protobuf"},
        )
        response.raise_for_status()


async def feed(gpus: Gpus, otlp: int, prometheus: Prometheus, count: str, temporality: str) -> None:
    """Sends the values in 2 parts. Prometheus scrapes the page between two parts, so `rate` sees all values."""
    for part, message in enumerate(gpus.parts(2, temporality)):
        await send(otlp, message)
        await prometheus.until(count, part * 500 * gpus.count)


def close(value: float, exact: float, ratio: float) -> bool:
    return exact / ratio <= value <= exact * ratio


@pytest.mark.parametrize("temporality", ["cumulative", "delta"])
async def test_classic_buckets_of_8_gpus_give_the_quantiles_of_all_values(
    peer: Peer, tmp_path: Path, unused_tcp_port_factory: Ports, temporality: str
) -> None:
    async with (
        gateway(tmp_path, unused_tcp_port_factory) as (otlp, page),
        scraping(peer("prometheus"), tmp_path, unused_tcp_port_factory(), node=page) as prometheus,
    ):
        await feed(REPORTED, otlp, prometheus, f"sum({FAMILY}_count)", temporality)
        for quantile in QUANTILES:
            exact = REPORTED.quantile(quantile)
            for buckets in (f"{FAMILY}_bucket", f"rate({FAMILY}_bucket[1m])", f"increase({FAMILY}_bucket[1m])"):
                value = await prometheus.value(f"histogram_quantile({quantile}, sum by (le) ({buckets}))")
                assert close(value, exact, GRID), (quantile, buckets, value, exact)
        counts = {count for _, count in await prometheus.series(f"count by (le) ({FAMILY}_bucket)")}
        assert counts == {8}, "a bound that one series lacks is missing in the sum"
        reported = await prometheus.value(f"histogram_quantile(0.85, sum by (le) ({FAMILY}_bucket))")
        assert reported < 0.1 < 0.12


@pytest.mark.parametrize("temporality", ["cumulative", "delta"])
async def test_native_histograms_of_8_gpus_give_the_quantiles_of_all_values(
    peer: Peer, tmp_path: Path, unused_tcp_port_factory: Ports, temporality: str
) -> None:
    port = unused_tcp_port_factory()
    async with (
        gateway(tmp_path, unused_tcp_port_factory) as (otlp, page),
        scraping(peer("prometheus"), tmp_path, port, ("native-histograms",), node=page) as prometheus,
    ):
        await feed(REPORTED, otlp, prometheus, f"histogram_count(sum({FAMILY}))", temporality)
        for quantile in QUANTILES:
            exact = REPORTED.quantile(quantile)
            for histograms in (FAMILY, f"rate({FAMILY}[1m])"):
                value = await prometheus.value(f"histogram_quantile({quantile}, sum({histograms}))")
                assert close(value, exact, NATIVE), (quantile, histograms, value, exact)
        total = sum(float(values.sum()) for values in REPORTED.values)
        assert await prometheus.value(f"histogram_sum(sum({FAMILY}))") == pytest.approx(total)
        assert await prometheus.series(f"{FAMILY}_bucket") == []
