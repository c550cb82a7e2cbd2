"""Steps whose histograms have other bounds in each report have the right count and quantiles in Prometheus 3."""

import math
import time
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

import pytest
from opentelemetry.proto.metrics.v1.metrics_pb2 import Metric

from otel_zernel_processors.phases.emit.durations import StepDurations
from tests.collectors import collector
from tests.exporters.otlp.collectors import request, send
from tests.interop.prometheus import Prometheus, configured, find_prometheus_3
from tests.libraries.histograms.temporality.test_moving_bounds import counts_of

REPORTS, STEPS = 10, 100
SECOND = 10**9
DURATIONS = [0.1 * math.exp(((number * 7919) % 1000) / 1000) for number in range(REPORTS * STEPS)]
"""1,000 steps of 0.1 s to 0.27 s."""
P90 = sorted(DURATIONS)[900]


def of_phases(begin: int) -> Iterable[Metric]:
    """The deltas of `phases`, which have bounds around each duration."""
    for report in range(REPORTS):
        steps, start = StepDurations(), begin + report * SECOND
        for duration in DURATIONS[report * STEPS : (report + 1) * STEPS]:
            steps.add("train", round(duration * 1e9))
        yield steps.metric((), {}, start, start + SECOND)


def with_one_more_bound_each(begin: int) -> Iterable[Metric]:
    """Cumulative points of another sender."""
    for report in range(REPORTS):
        bounds = [0.1 * math.exp(number / 20) for number in range(12 + report)]
        metric = Metric(name="zernel.step.duration", unit="s")
        metric.histogram.aggregation_temporality = 2  # type: ignore[assignment]  # an enum's number
        done = DURATIONS[: (report + 1) * STEPS]
        counts = counts_of(done, bounds)
        metric.histogram.data_points.add(
            start_time_unix_nano=begin,
            time_unix_nano=begin + (report + 1) * SECOND,
            count=len(done),
            sum=sum(done),
            bucket_counts=counts,
            explicit_bounds=bounds,
            max=max(done),
        )
        yield metric


@pytest.mark.parametrize("sender", [of_phases, with_one_more_bound_each])
async def test_each_way_into_prometheus_has_all_steps_and_their_p90(
    sender: Callable[[int], Iterable[Metric]], tmp_path: Path, unused_tcp_port_factory: Callable[[], int]
) -> None:
    port, page, api = (unused_tcp_port_factory() for _ in range(3))
    settings: dict[str, Any] = {
        "receivers": {"otlp": {"protocols": {"grpc": {"endpoint": f"127.0.0.1:{port}"}}}},
        "exporters": {
            "otlp_http": {"endpoint": f"http://127.0.0.1:{api}/api/v1/otlp"},
            "otlp_http/fixed": {"endpoint": f"http://127.0.0.1:{api}/api/v1/otlp", "moving_bounds": "fixed"},
            "prometheus_remote_write": {"endpoint": f"http://127.0.0.1:{api}/api/v1/write", "namespace": "written"},
            "prometheus": {"endpoint": f"127.0.0.1:{page}", "namespace": "page"},
        },
    }
    pipeline = {"receivers": ["otlp"], "exporters": [*settings["exporters"]]}
    settings["service"] = {"pipelines": {"metrics": pipeline}}
    scrapes = [{"job_name": "page", "static_configs": [{"targets": [f"127.0.0.1:{page}"]}]}]
    receivers = "--web.enable-otlp-receiver", "--web.enable-remote-write-receiver"
    async with (
        collector(tmp_path / "collector", settings, port, page),
        configured(find_prometheus_3(), tmp_path, api, scrapes, ("exemplar-storage",), *receivers) as prometheus,
    ):
        begin = time.time_ns() - REPORTS * SECOND
        await send(port, *(request(metric) for metric in sender(begin)))
        await check_native(prometheus, "zernel_step_duration_seconds", is_marked=sender is of_phases)
        await check_native(prometheus, "written_zernel_step_duration_seconds", is_marked=sender is of_phases)
        await check_classic(prometheus, "zernel_step_duration_seconds")
        await check_classic(prometheus, "page_zernel_step_duration_seconds")


async def check_native(prometheus: Prometheus, name: str, *, is_marked: bool) -> None:
    """The native histogram of a metric.

    Without a mark, the first report came before the bounds moved, and early bounds do not tell large values apart.
    """
    count, tolerance = (REPORTS * STEPS, 0.02) if is_marked else ((REPORTS - 1) * STEPS, 0.05)
    await prometheus.until(f"histogram_count({name})", count)
    assert await prometheus.value(f"histogram_quantile(0.9, {name})") == pytest.approx(P90, rel=tolerance)
    assert await prometheus.value(f"resets({name}[5m])") == 0


async def check_classic(prometheus: Prometheus, name: str) -> None:
    await prometheus.until(f"{name}_count", REPORTS * STEPS)
    quantile = f"histogram_quantile(0.9, sum by (le) ({name}_bucket))"
    assert await prometheus.value(quantile) == pytest.approx(P90, rel=0.05)
    assert await prometheus.value(f"max(resets({name}_bucket[5m]))") == 0
