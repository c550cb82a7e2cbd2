"""Debian's Prometheus scrapes every series of the exporter, and promtool has no complaints about its pages."""

import math
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from otel_zernel.batch import Batch
from otel_zernel.exposition import Format, Page
from otel_zernel.testing import make_context
from otel_zernel_exporters.prometheus import PrometheusExporter
from tests.core.exposition.otlp import node
from tests.interop.prometheus import Prometheus, promtool, scraping
from tests.interop.recording import recorded

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
            assert [one["exemplars"][0]["labels"]["trace_id"] for one in exemplars] == [bytes(range(16)).hex()]


async def check_values(prometheus: Prometheus, page: str) -> None:
    target = 'job="training/llm",instance="node-1"'
    gpu = f'{{{target},otel_scope_name="nvml",otel_scope_version="1.0",hw_id="GPU-1",{page}}}'
    assert await prometheus.value(f"hw_gpu_utilization_ratio{gpu}") == 0.25
    assert await prometheus.value(f"hw_gpu_memory_usage_bytes{gpu}") == 7 << 30
    assert await prometheus.value(f"hw_energy_joules_total{gpu}") == 1234.5
    assert await prometheus.value(f"hw_power_watts{gpu}") == math.inf
    assert math.isnan(await prometheus.value(f"hw_temperature_celsius{gpu}"))
    latency = "zernel_cuda_launch_latency_seconds"
    quantiles = await prometheus.series(f'{latency}{{{target},pid="4242",{page}}}')
    assert {labels["quantile"]: value for labels, value in quantiles} == {
        "0": 1e-6,
        "0.5": 5e-6,
        "0.99": 2e-5,
        "1": 0.5,
    }
    assert await prometheus.value(f"{latency}_count{{{page}}}") == 1000
    assert await prometheus.value(f"{latency}_sum{{{page}}}") == 0.75
    assert await prometheus.value(f'zernel_dataloader_wait_seconds_bucket{{le="0.5",{page}}}') == 5
    assert await prometheus.value(f'zernel_step_duration_seconds_bucket{{le="+Inf",{page}}}') == 9
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
    unit = {"seconds", "bytes", "joules"} if is_modern else {""}
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
