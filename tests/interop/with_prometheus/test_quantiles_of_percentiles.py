"""Readings of 8 GPUs through `percentiles` to Prometheus: PromQL gives the quantiles of all readings."""

from collections.abc import Callable
from pathlib import Path

import pytest
from opentelemetry.proto.metrics.v1.metrics_pb2 import Gauge, Metric, MetricsData, NumberDataPoint

from otel_zernel.otlp.points import key_values
from tests.interop.prometheus import scraping
from tests.interop.with_prometheus.gpus import Gpus
from tests.interop.with_prometheus.test_quantiles_of_gpus import GRID, NATIVE, QUANTILES, REPORTED, close, gateway, send
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


@pytest.mark.parametrize(("features", "ratio"), [((), GRID), (("native-histograms",), NATIVE)])
async def test_readings_of_8_gpus_that_percentiles_counts_give_the_quantiles_of_all_readings(
    peer: Peer, tmp_path: Path, unused_tcp_port_factory: Ports, features: tuple[str, ...], ratio: float
) -> None:
    port = unused_tcp_port_factory()
    used = features or ("exemplar-storage",)
    count = f"histogram_count(sum({FAMILY}))" if features else f"sum({FAMILY}_count)"
    histograms = (
        (f"sum({FAMILY})", f"sum(rate({FAMILY}[1m]))")
        if features
        else (f"sum by (le) ({FAMILY}_bucket)", f"sum by (le) (rate({FAMILY}_bucket[1m]))")
    )
    async with (
        gateway(tmp_path, unused_tcp_port_factory, {"percentiles": {"interval": "300ms"}}) as (otlp, page),
        scraping(peer("prometheus"), tmp_path, port, used, node=page) as prometheus,
    ):
        for part in range(2):
            await send(otlp, readings(REPORTED, part))
            await prometheus.until(count, (part + 1) * 500 * REPORTED.count)
        for quantile in QUANTILES:
            exact = REPORTED.quantile(quantile)
            value = await prometheus.value(f"histogram_quantile({quantile}, {histograms[0]})")
            assert close(value, exact, ratio), (quantile, value, exact)
        rated = await prometheus.value(f"histogram_quantile(0.5, {histograms[1]})")
        assert close(rated, REPORTED.quantile(0.5), ratio * 1.05), "it sees the second half of the readings"
        assert await prometheus.series("app_step_time_seconds") == [], "the readings themselves do not pass"
