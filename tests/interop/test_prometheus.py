"""Debian's Prometheus scrapes the exporter and has every series; promtool finds nothing to say about its pages."""

import asyncio
import math
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import httpx
import pytest
import yaml

from otel_zernel.batch import Batch
from otel_zernel.exposition import Format, Page
from otel_zernel.testing import Downstream, make_context
from otel_zernel_exporters.prometheus import PrometheusExporter
from tests.core.exposition.otlp import node

RECORDED = Path("../shared/data/dcgm_metrics_20250718_134233.csv")
Peer = Callable[[str], Path]


@dataclass(frozen=True)
class Prometheus:
    """The HTTP API of a running Prometheus."""

    client: httpx.AsyncClient

    async def get(self, path: str, **parameters: str) -> Any:
        response = await self.client.get(f"/api/v1/{path}", params=parameters)
        return response.raise_for_status().json()["data"]

    async def series(self, query: str) -> list[tuple[dict[str, str], float]]:
        """The labels and values that a query gives."""
        found = (await self.get("query", query=query))["result"]
        return [(one["metric"], float(one["value"][1])) for one in found]

    async def value(self, query: str) -> float:
        """The value of the only series that a query gives."""
        [(_, value)] = await self.series(query)
        return value

    async def scraped(self, *jobs: str) -> None:
        """Returns when every job's page was taken without an error."""
        async with asyncio.timeout(20):
            while {labels["job"] for labels, _ in await self.series("up == 1")} < set(jobs):
                await self.fail_on_errors()
                await asyncio.sleep(0.1)

    async def fail_on_errors(self) -> None:
        targets = (await self.get("targets"))["activeTargets"]
        assert not [one["lastError"] for one in targets if one["lastError"]]


@asynccontextmanager
async def scraping(program: Path, folder: Path, port: int, **jobs: int) -> AsyncIterator[Prometheus]:
    """A Prometheus that scrapes the jobs' ports, once a second."""
    scrapes = [
        {"job_name": job, "honor_labels": True, "static_configs": [{"targets": [f"127.0.0.1:{target}"]}]}
        for job, target in jobs.items()
    ]
    config = folder / "prometheus.yaml"
    config.write_text(yaml.safe_dump({"global": {"scrape_interval": "1s"}, "scrape_configs": scrapes}))
    arguments = [f"--config.file={config}", f"--storage.tsdb.path={folder}/data"]
    arguments += [f"--web.listen-address=127.0.0.1:{port}", "--enable-feature=exemplar-storage"]
    with (folder / "prometheus.log").open("w") as log:
        process = await asyncio.create_subprocess_exec(program, *arguments, stdout=log, stderr=log)
    try:
        async with httpx.AsyncClient(base_url=f"http://127.0.0.1:{port}") as client:
            await until_ready(client)
            yield Prometheus(client)
    finally:
        process.terminate()
        await process.wait()


async def until_ready(client: httpx.AsyncClient) -> None:
    async with asyncio.timeout(20):
        while True:
            try:
                if (await client.get("/-/ready")).status_code == 200:
                    return
            except httpx.TransportError:
                pass
            await asyncio.sleep(0.05)


def exporter(**config: Any) -> PrometheusExporter:
    settings = PrometheusExporter.Config.model_validate({"endpoint": "127.0.0.1:0", **config})
    return PrometheusExporter(settings, make_context("exporters", "prometheus"))


async def recorded() -> Batch:
    """dcgm-exporter's own recording of 247 GPUs, as the csv receiver reads it."""
    from otel_zernel_receivers.csv import CsvReceiver

    if not RECORDED.exists():  # noqa: ASYNC240  # a test may block
        pytest.skip(f"the recording is not here: {RECORDED}")
    downstream = Downstream()
    await CsvReceiver(CsvReceiver.Config.model_validate({"files": [str(RECORDED)]}), make_context()).run(downstream)
    return Batch.join(downstream.batches)


async def promtool(program: Path, page: bytes) -> str:
    """What `promtool check metrics` finds wrong with a page."""
    pipe = asyncio.subprocess.PIPE
    process = await asyncio.create_subprocess_exec(program, "check", "metrics", stdin=pipe, stdout=pipe, stderr=pipe)
    said = await process.communicate(page)
    return b"".join(said).decode() if process.returncode else ""


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


async def test_prometheus_scrapes_the_recording_of_247_gpus(peer: Peer, tmp_path: Path, unused_tcp_port: int) -> None:
    batch = await recorded()
    async with exporter() as one:
        await one.export(batch)
        assert not one.context.drop.counts  # type: ignore[attr-defined]  # make_context's counter
        async with scraping(peer("prometheus"), tmp_path, unused_tcp_port, dcgm=one.address.port) as prometheus:
            await prometheus.scraped("dcgm")
            assert await prometheus.value('count({job="dgx_dcgm_exporter",__name__!="target_info"})') == 2470
            assert await prometheus.value('count(count by (hw_id) ({hw_id!=""}))') == 247


@pytest.mark.parametrize("name", ["node", "recorded"])
async def test_promtool_finds_nothing_to_say(peer: Peer, name: str) -> None:
    page = Page()
    page.update(node() if name == "node" else (await recorded()).metrics, 0)
    assert await promtool(peer("promtool"), page.render(Format(), 0)) == ""


async def test_promtool_does_complain_about_a_bad_page(peer: Peer) -> None:
    assert "no help text" in await promtool(peer("promtool"), b"# TYPE a gauge\na 1\n")
