"""Percentiles over all ranks, by real collectors: two sidecars send to one gateway, in the two ways of the README."""

import asyncio
import json
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from google.protobuf.json_format import ParseDict
from opentelemetry.proto.metrics.v1.metrics_pb2 import ExponentialHistogramDataPoint, MetricsData, SummaryDataPoint

from otel_zernel.testing import until
from otel_zernel_libraries.histograms.quantiles import histogram_quantiles
from tests.collectors import collector
from tests.exporters.otlp.collectors import send
from tests.processors.percentiles.running import gauge

SIDECARS = 2
ROUNDS, VALUES = 3, 250
"""Requests to each sidecar, and values in each."""
QUANTILES = [0.5, 0.85, 0.9, 0.99]
Port = Callable[[], int]


def values_of(rank: int) -> list[list[float]]:
    """The step times of a rank in s, by request. Rank 1 is slow; each rank has a range of its own."""
    rng = np.random.default_rng(rank)
    values = rng.lognormal(mean=-3 + 0.7 * rank, sigma=0.2 + 0.3 * rank, size=(ROUNDS, VALUES))
    return [[float(value) for value in some] for some in values]


ALL = np.sort([value for rank in range(SIDECARS) for some in values_of(rank) for value in some])


def receiver(port: int) -> dict[str, Any]:
    return {"otlp": {"protocols": {"grpc": {"endpoint": f"127.0.0.1:{port}"}}}}


def sidecar(port: int, gateway: int, processors: Mapping[str, Any]) -> dict[str, Any]:
    exporter = {"otlp_grpc": {"endpoint": f"http://127.0.0.1:{gateway}"}}
    pipeline = {"receivers": ["otlp"], "processors": list(processors), "exporters": ["otlp_grpc"]}
    return {
        "receivers": receiver(port),
        "processors": dict(processors),
        "exporters": exporter,
        "service": {"pipelines": {"metrics": pipeline}},
    }


@dataclass
class Cluster:
    """Two sidecars and a gateway, which writes what it has computed to a file."""

    ports: list[int]
    written: Path

    async def send_all(self) -> None:
        """Every rank sends its values to its sidecar, each time after an output of the gateway."""
        for number in range(ROUNDS):
            before = self._lines()
            await asyncio.gather(
                *(
                    send(port, gauge(values_of(rank)[number], resource={"rank": rank}).bytes_of("metrics"))
                    for rank, port in enumerate(self.ports)
                )
            )
            await until(lambda before=before: self._lines() > before, within=60)  # type: ignore[misc]

    def _lines(self) -> int:
        return self.written.read_text().count("\n") if self.written.exists() else 0

    def newest(self) -> dict[str, Any]:
        """The newest point of each metric of the gateway."""
        found: dict[str, Any] = {}
        for line in self.written.read_text().splitlines() if self._lines() else ():
            for resource in ParseDict(json.loads(line), MetricsData()).resource_metrics:
                for metric in (metric for scope in resource.scope_metrics for metric in scope.metrics):
                    kind = metric.WhichOneof("data") or ""
                    [found[metric.name]] = getattr(metric, kind).data_points
        return found


@asynccontextmanager
async def cluster(
    folder: Path, port: Port, in_sidecar: Mapping[str, Any], at_gateway: Mapping[str, Any]
) -> AsyncIterator[Cluster]:
    ports, entrance, written = [port() for _ in range(SIDECARS)], port(), folder / "written.jsonl"
    gateway = {
        "receivers": receiver(entrance),
        "processors": {"percentiles": at_gateway},
        "exporters": {"file": {"path": str(written), "flush_interval": "50ms"}},
        "service": {
            "pipelines": {"metrics": {"receivers": ["otlp"], "processors": ["percentiles"], "exporters": ["file"]}}
        },
    }
    async with AsyncExitStack() as stack:
        running = [collector(folder / "gateway", gateway, entrance)]
        running += [
            collector(folder / f"sidecar{rank}", sidecar(at, entrance, in_sidecar), at) for rank, at in enumerate(ports)
        ]
        await asyncio.gather(*map(stack.enter_async_context, running))
        yield Cluster(ports, written)


MERGED = {"group_by": [], "interval": "200ms"}


async def test_histograms_of_sidecars_merge_into_the_quantiles_of_all_values(
    tmp_path: Path, unused_tcp_port_factory: Port
) -> None:
    in_sidecar = {"percentiles": {"interval": "300ms"}}
    async with cluster(tmp_path, unused_tcp_port_factory, in_sidecar, MERGED) as it:
        await it.send_all()
        await until(lambda: _count(it, "latency.distribution") == len(ALL), within=60)
        point = it.newest()["latency.distribution"]
    assert isinstance(point, ExponentialHistogramDataPoint)
    assert point.sum == pytest.approx(ALL.sum(), rel=1e-6)
    width = 2.0 ** (2.0**-point.scale) - 1
    assert width < 0.05
    exact = np.quantile(ALL, QUANTILES, method="inverted_cdf")
    # One bucket in the sidecar and one in the gateway.
    assert histogram_quantiles(point, QUANTILES) == pytest.approx(exact, rel=2 * width + 1e-3)


async def test_raw_values_of_sidecars_have_the_exact_quantiles_at_the_gateway(
    tmp_path: Path, unused_tcp_port_factory: Port
) -> None:
    at_gateway = {**MERGED, "outputs": ["summary"], "quantiles": QUANTILES, "window": "since_start"}
    async with cluster(tmp_path, unused_tcp_port_factory, {}, at_gateway) as it:
        await it.send_all()
        await until(lambda: _count(it, "latency.percentiles") == len(ALL), within=60)
        point = it.newest()["latency.percentiles"]
    assert isinstance(point, SummaryDataPoint)
    found = {at.quantile: at.value for at in point.quantile_values}
    exact = np.quantile(ALL, QUANTILES, method="inverted_cdf")
    assert [found[quantile] for quantile in QUANTILES] == pytest.approx(exact, rel=1e-3)
    assert (found[0], found[1]) == pytest.approx((ALL[0], ALL[-1]), rel=1e-3)


def _count(it: Cluster, name: str) -> int:
    point = it.newest().get(name)
    return int(point.count) if point else 0
