"""Readings of 8 GPUs through `percentiles` to Prometheus: PromQL gives the quantiles of all readings."""

from collections.abc import Callable
from pathlib import Path

from opentelemetry.proto.metrics.v1.metrics_pb2 import Gauge, Metric, MetricsData, NumberDataPoint

from otel_zernel.otlp.points import key_values
from tests.interop.prometheus import Prometheus
from tests.interop.with_prometheus.gpus import Gpus
from tests.interop.with_prometheus.test_quantiles_of_gpus import (
    GRID,
    NATIVE,
    QUANTILES,
    REPORTED,
    close,
    gateway,
    scraped,
    send,
)
from tests.otlp import NOW, data

Peer = Callable[[str], Path]
Ports = Callable[[], int]
METRIC, FAMILY = "app.step.time", "app_step_time_distribution_seconds"


def readings(gpus: Gpus, part: int) -> MetricsData:
    """Half of the values of each GPU, a gauge's point each."""
    values = [(gpu, index, value) for gpu, its in enumerate(gpus.values) for index, value in enumerate(its[part::2])]
    points = [
        NumberDataPoint(attributes=key_values({"hw.id": f"GPU-{gpu}"}), time_unix_nano=NOW + index, as_double=value)
        for gpu, index, value in values
    ]
    resource = {"service.name": "llm", "service.instance.id": "node-1"}
    return data(Metric(name=METRIC, unit="s", gauge=Gauge(data_points=points)), resource=resource)


async def test_readings_of_8_gpus_that_percentiles_counts_give_the_quantiles_of_all_readings(
    peer: Peer, tmp_path: Path, unused_tcp_port_factory: Ports
) -> None:
    ports = unused_tcp_port_factory
    async with (
        gateway(tmp_path / "gateway", ports, {"percentiles": {"interval": "300ms"}}) as (otlp, page),
        scraped(peer("prometheus"), tmp_path, ports, {"node": page}) as (classic, native),
    ):
        for part in range(2):
            await send(otlp, readings(REPORTED, part))
            await classic.until(f"sum({FAMILY}_count)", (part + 1) * 500 * REPORTED.count)
            await native.until(f"histogram_count(sum({FAMILY}))", (part + 1) * 500 * REPORTED.count)
        await check(classic, f"sum by (le) ({FAMILY}_bucket)", f"sum by (le) (rate({FAMILY}_bucket[1m]))", GRID)
        await check(native, f"sum({FAMILY})", f"sum(rate({FAMILY}[1m]))", NATIVE)


async def check(prometheus: Prometheus, values: str, rates: str, ratio: float) -> None:
    for quantile in QUANTILES:
        exact = REPORTED.quantile(quantile)
        value = await prometheus.value(f"histogram_quantile({quantile}, {values})")
        assert close(value, exact, ratio), (quantile, value, exact)
    rated = await prometheus.value(f"histogram_quantile(0.5, {rates})")
    assert close(rated, REPORTED.quantile(0.5), ratio * 1.05), "it sees the second half of the readings"
    assert await prometheus.series("app_step_time_seconds") == [], "the readings themselves do not pass"
