"""Deltas of an SDK reach Debian's Prometheus as totals, behind two collectors that speak OTLP with each other."""

import asyncio
from collections.abc import Callable
from pathlib import Path

from opentelemetry.exporter.otlp.proto.grpc.metric_exporter import OTLPMetricExporter
from opentelemetry.sdk.metrics import Counter, Histogram, MeterProvider
from opentelemetry.sdk.metrics.export import AggregationTemporality, PeriodicExportingMetricReader

from tests.collectors import collector
from tests.exporters.otlp.collectors import gateway
from tests.interop.prometheus import scraping

DELTAS: dict[type, AggregationTemporality] = dict.fromkeys((Counter, Histogram), AggregationTemporality.DELTA)
FLUSHES, STEPS = 5, 40


async def test_prometheus_has_the_totals_of_delta_sums_and_histograms(
    peer: Callable[[str], Path], tmp_path: Path, unused_tcp_port_factory: Callable[[], int]
) -> None:
    first, second, page, api = (unused_tcp_port_factory() for _ in range(4))
    written = tmp_path / "written.jsonl"
    last = {
        "receivers": {"otlp": {"protocols": {"grpc": {"endpoint": f"127.0.0.1:{second}"}}}},
        "exporters": {"prometheus": {"endpoint": f"127.0.0.1:{page}"}, "file": {"path": str(written)}},
        "service": {"pipelines": {"metrics": {"receivers": ["otlp"], "exporters": ["prometheus", "file"]}}},
    }
    relay = gateway(first, {"otlp_grpc": {"endpoint": f"http://127.0.0.1:{second}"}})
    async with (
        collector(tmp_path / "last", last, second, page),
        collector(tmp_path / "relay", relay, first),
        scraping(peer("prometheus"), tmp_path, api, last=page) as prometheus,
    ):
        sender = OTLPMetricExporter(endpoint=f"127.0.0.1:{first}", insecure=True, preferred_temporality=DELTAS)
        provider = MeterProvider([PeriodicExportingMetricReader(sender, 3_600_000)], shutdown_on_exit=False)
        await asyncio.to_thread(_work, provider)
        await prometheus.until("sum(steps_total)", FLUSHES * STEPS * 4)
        assert await prometheus.value('steps_total{rank="3"}') == FLUSHES * STEPS
        assert await prometheus.value("sum(duration_seconds_count)") == FLUSHES * STEPS * 4
        assert await prometheus.value("sum(duration_seconds_sum)") == FLUSHES * STEPS * (1 + 2 + 3 + 4)
        assert await prometheus.value('sum(duration_seconds_bucket{le="2.5"})') == FLUSHES * STEPS * 2
        await asyncio.to_thread(provider.shutdown)
    assert '"aggregationTemporality":2' in written.read_text()
    assert '"aggregationTemporality":1' not in written.read_text()


def _work(provider: MeterProvider) -> None:
    meter = provider.get_meter("training")
    steps = meter.create_counter("steps")
    duration = meter.create_histogram("duration", "s", explicit_bucket_boundaries_advisory=[1.5, 2.5, 3.5])
    for _ in range(FLUSHES):
        for rank in range(4):
            for _ in range(STEPS):
                steps.add(1, {"rank": rank})
                duration.record(rank + 1, {"rank": rank})
        assert provider.force_flush()
