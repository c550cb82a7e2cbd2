"""Debian's Prometheus scrapes every series of the exporter in every format. promtool finds no fault with its pages."""

import math
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from opentelemetry.proto.metrics.v1.metrics_pb2 import Exemplar, MetricsData

from otel_zernel.batch import Batch
from otel_zernel.testing import make_context
from otel_zernel_exporters.prometheus import PrometheusExporter
from otel_zernel_libraries.prometheus import Format, Page
from tests.interop.prometheus import Prometheus, promtool, scraping
from tests.interop.recording import recorded
from tests.otlp import NOW, data, exponential, histogram, node

Peer = Callable[[str], Path]


def exporter(**config: Any) -> PrometheusExporter:
    settings = PrometheusExporter.Config.model_validate({"endpoint": "127.0.0.1:0", **config})
    return PrometheusExporter(settings, make_context("exporters", "prometheus"))


async def test_prometheus_has_every_series_with_its_labels_and_type_by_both_formats(
    peer: Peer, tmp_path: Path, unused_tcp_port: int
) -> None:
    names = {"process.pid": "pid"}
    async with (
        exporter(label_names=names) as modern,
        exporter(label_names=names, enable_open_metrics=False, const_labels={"format": "text"}) as classic,
    ):
        for one in (modern, classic):
            await one.export(Batch(node()))
        ports = {"modern": modern.address.port, "classic": classic.address.port}
        async with scraping(peer("prometheus"), tmp_path, unused_tcp_port, **ports) as prometheus:
            await prometheus.scraped(*ports)
            await check_values(prometheus, 'format=""')
            await check_values(prometheus, 'format="text"')
            await check_types(prometheus, "modern")
            await check_types(prometheus, "classic")
            exemplars = await prometheus.get("query_exemplars", query="{__name__=~'.+'}", start="0", end="9999999999")
            assert [exemplar["exemplars"][0]["labels"]["trace_id"] for exemplar in exemplars] == [
                bytes(range(16)).hex()
            ]


async def test_prometheus_has_every_series_and_native_histograms_by_protobuf(
    peer: Peer, tmp_path: Path, unused_tcp_port: int
) -> None:
    features = "exemplar-storage", "native-histograms"
    async with exporter(label_names={"process.pid": "pid"}) as one:
        await one.export(Batch(node()))
        await one.export(Batch(counted_twice()))
        async with scraping(
            peer("prometheus"), tmp_path, unused_tcp_port, features, protobuf=one.address.port
        ) as prometheus:
            await prometheus.scraped("protobuf")
            await check_numbers(prometheus, 'format=""')
            await check_types(prometheus, "protobuf")
            step = "zernel_step_duration_seconds"
            assert await prometheus.value(f"histogram_count({step})") == 9
            assert await prometheus.value(f"histogram_sum({step})") == 7.25
            assert await prometheus.value(f"histogram_fraction(0, 1e-9, {step})") == pytest.approx(1 / 9)
            assert await prometheus.series(f"{step}_bucket") == []
            assert math.isnan(await prometheus.value('histogram_sum({__name__="unknown_sum"})'))
            assert await prometheus.value('histogram_count({__name__="unknown_sum"})') == 3
            assert await prometheus.value('mixed_bucket{le="2.0",job="explicit"}') == 1
            assert await prometheus.value('histogram_count(mixed{job="exponential"})') == 2
            exemplars = await prometheus.get("query_exemplars", query="{__name__=~'.+'}", start="0", end="9999999999")
            found = {exemplar["seriesLabels"]["__name__"]: exemplar["exemplars"][0]["value"] for exemplar in exemplars}
            assert found == {"zernel_dataloader_wait_seconds_bucket": "0.2", "mixed": "1.5"}


def counted_twice() -> MetricsData:
    """Histograms of one name, with explicit bounds and exponential, and one without a sum and with negative values."""
    slow = Exemplar(as_double=1.5, trace_id=bytes(16), time_unix_nano=NOW)
    message = data(histogram("mixed", [2.0], [1, 0], 1.5, unit=""), resource={"service.name": "explicit"})
    mixed, unknown = (
        exponential("mixed", 3, (0, [1, 1]), exemplars=(slow,)),
        exponential("unknown.sum", 9, negative=(0, [3])),
    )
    mixed.unit = unknown.unit = ""
    message.MergeFrom(data(mixed, unknown, resource={"service.name": "exponential"}))
    return message


async def check_values(prometheus: Prometheus, page: str) -> None:
    """The values of `node()`, with classic buckets."""
    await check_numbers(prometheus, page)
    assert await prometheus.value(f'zernel_step_duration_seconds_bucket{{le="+Inf",{page}}}') == 9


async def check_numbers(prometheus: Prometheus, page: str) -> None:
    target = 'job="training/llm",instance="node-1"'
    gpu = f'{{{target},otel_scope_name="nvml",otel_scope_version="1.0",hw_id="GPU-1",{page}}}'
    assert await prometheus.value(f"hw_gpu_utilization_ratio{gpu}") == 0.25
    assert await prometheus.value(f"hw_gpu_memory_usage_bytes{gpu}") == 7 << 30
    assert await prometheus.value(f"hw_energy_joules_total{gpu}") == 1234.5
    assert await prometheus.value(f"hw_power_watts{gpu}") == math.inf
    assert math.isnan(await prometheus.value(f"hw_temperature_celsius{gpu}"))
    latency = "zernel_cuda_launch_latency_seconds"
    quantiles = await prometheus.series(f'{latency}{{{target},pid="4242",{page}}}')
    assert {float(labels["quantile"]): value for labels, value in quantiles} == {0: 1e-6, 0.5: 5e-6, 0.99: 2e-5, 1: 0.5}
    assert await prometheus.value(f"{latency}_count{{{page}}}") == 1000
    assert await prometheus.value(f"{latency}_sum{{{page}}}") == 0.75
    assert await prometheus.value(f'zernel_dataloader_wait_seconds_bucket{{le="0.5",{page}}}') == 5
    [(odd, _)] = await prometheus.series(f"zernel_odd{{{page}}}")
    assert odd["path"] == 'C:\\x "y"\n'
    assert odd["nul"] == "a\0b"
    assert odd["gr_e"] == "groß"
    assert odd["bool"] == "true"
    [(info, _)] = await prometheus.series(f"target_info{{{page}}}")
    assert (info["host_name"], info["hw_vendor"], "hw_id" in info) == ("node-1", "NVIDIA", False)
    joined = await prometheus.series(
        f"hw_power_watts{{{page}}} * on (job, instance) group_left (host_name) target_info{{{page}}}"
    )
    assert [labels["host_name"] for labels, _ in joined] == ["node-1", "node-1"]


async def check_types(prometheus: Prometheus, job: str) -> None:
    metadata = await prometheus.get("targets/metadata", match_target=f'{{job="{job}"}}')
    known = {one["metric"]: (one["type"], one["unit"]) for one in metadata}
    is_modern = job == "modern"
    unit = {"seconds", "bytes", "joules"} if is_modern else {""}  # 2.42 does not read the units of messages
    assert known["hw_energy_joules" if is_modern else "hw_energy_joules_total"][0] == "counter"
    assert known["hw_gpu_memory_usage_bytes"][0] == "gauge"
    assert known["zernel_cuda_launch_latency_seconds"][0] == "summary"
    assert known["zernel_dataloader_wait_seconds"][0] == "histogram"
    assert known["hw_gpu_memory_usage_bytes"][1] in unit
    helps = {one["help"] for one in metadata}
    assert {'Share of time\0 a "kernel" ran.', "Energy\\consumed\nsince boot."} <= helps


@pytest.mark.parametrize("name", ["node", "recorded"])
async def test_promtool_has_no_complaints(peer: Peer, name: str) -> None:
    page = Page()
    page.update(node() if name == "node" else (await recorded()).metrics, 0)
    assert await promtool(peer("promtool"), page.render(Format(), 0)) == ""


async def test_promtool_complains_about_a_bad_page(peer: Peer) -> None:
    assert "no help text" in await promtool(peer("promtool"), b"# TYPE a gauge\na 1\n")
