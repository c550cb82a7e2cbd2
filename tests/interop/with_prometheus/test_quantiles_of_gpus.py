"""Quantiles over 8 GPUs: the collector's process, Prometheus, and PromQL give the quantiles of all values."""

from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path
from typing import Any

import httpx
import pytest
from opentelemetry.proto.metrics.v1.metrics_pb2 import MetricsData

from tests.collectors import collector
from tests.interop.prometheus import Prometheus, scraping, until_ready
from tests.interop.with_prometheus.gpus import FAMILY, TEMPORALITIES, Gpus

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


@asynccontextmanager
async def scraped(
    program: Path, folder: Path, ports: Ports, pages: Mapping[str, int]
) -> AsyncIterator[tuple[Prometheus, Prometheus]]:
    """Two that scrape the pages: one has classic buckets, the other one native histograms."""
    async with AsyncExitStack() as stack:
        servers = []
        for feature in ("exemplar-storage", "native-histograms"):
            (folder / feature).mkdir()
            scraping_one = scraping(program, folder / feature, ports(), (feature,), **pages)
            servers.append(await stack.enter_async_context(scraping_one))
        classic, native = servers
        yield classic, native


def close(value: float, exact: float, ratio: float) -> bool:
    return exact / ratio <= value <= exact * ratio


async def test_classic_buckets_and_native_histograms_of_8_gpus_give_the_quantiles_of_all_values(
    peer: Peer, tmp_path: Path, unused_tcp_port_factory: Ports
) -> None:
    """Sent as totals and as deltas. Prometheus scrapes each page between two parts, so `rate` sees all values."""
    ports = unused_tcp_port_factory
    async with AsyncExitStack() as stack:
        gateways = {
            temporality: await stack.enter_async_context(
                gateway(tmp_path / temporality, ports, const_labels={"sent": temporality})
            )
            for temporality in TEMPORALITIES
        }
        pages = {temporality: page for temporality, (_, page) in gateways.items()}
        classic, native = await stack.enter_async_context(scraped(peer("prometheus"), tmp_path, ports, pages))
        for part in range(3):
            for temporality, (otlp, _) in gateways.items():
                await send(otlp, list(REPORTED.parts(2, temporality))[part])
            for temporality in gateways:
                of = f'{{sent="{temporality}"}}'
                await classic.until(f"sum({FAMILY}_count{of})", part * 500 * REPORTED.count)
                await native.until(f"histogram_count(sum({FAMILY}{of}))", part * 500 * REPORTED.count)
        for temporality in gateways:
            await check_classic(classic, f'{{sent="{temporality}"}}')
            await check_native(native, f'{{sent="{temporality}"}}')


async def check_classic(prometheus: Prometheus, of: str) -> None:
    buckets = f"{FAMILY}_bucket{of}"
    for quantile in QUANTILES:
        exact = REPORTED.quantile(quantile)
        for read in (buckets, f"rate({buckets}[1m])", f"increase({buckets}[1m])"):
            value = await prometheus.value(f"histogram_quantile({quantile}, sum by (le) ({read}))")
            assert close(value, exact, GRID), (quantile, read, value, exact)
    counts = {count for _, count in await prometheus.series(f"count by (le) ({buckets})")}
    assert counts == {8}, "a bound that one series lacks is missing in the sum"
    assert await prometheus.value(f"histogram_quantile(0.85, sum by (le) ({buckets}))") < 0.1 < 0.12


async def check_native(prometheus: Prometheus, of: str) -> None:
    for quantile in QUANTILES:
        exact = REPORTED.quantile(quantile)
        for read in (f"{FAMILY}{of}", f"rate({FAMILY}{of}[1m])"):
            value = await prometheus.value(f"histogram_quantile({quantile}, sum({read}))")
            assert close(value, exact, NATIVE), (quantile, read, value, exact)
    total = sum(float(values.sum()) for values in REPORTED.values)
    assert await prometheus.value(f"histogram_sum(sum({FAMILY}{of}))") == pytest.approx(total)
    assert await prometheus.series(f"{FAMILY}_bucket{of}") == []
