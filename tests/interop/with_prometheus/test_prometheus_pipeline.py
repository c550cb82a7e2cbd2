"""The whole process: a collector scrapes a page like dcgm-exporter's and shows it on a page of its own."""

import asyncio
from pathlib import Path

import httpx

from tests.collectors import collector
from tests.interop.prometheus import until_ready
from tests.receivers.prometheus.serving import serving

GPUS = 8
FIELDS = {"DCGM_FI_DEV_GPU_UTIL": 57, "DCGM_FI_DEV_FB_USED": 1024, "DCGM_FI_DEV_TOTAL_ENERGY_CONSUMPTION": 5000}


def dcgm_page() -> bytes:
    """A page in the form of dcgm-exporter's."""
    lines = []
    for field, value in FIELDS.items():
        lines += [f"# HELP {field} A field of DCGM.", f"# TYPE {field} gauge"]
        for gpu in range(GPUS):
            labels = f'gpu="{gpu}",UUID="GPU-{gpu}",device="nvidia{gpu}",modelName="NVIDIA H100",Hostname="node-1"'
            lines.append(f'{field}{{{labels},DCGM_FI_DRIVER_VERSION="550.1",pod="train-{gpu}",namespace="ml"}} {value}')
    return "\n".join([*lines, ""]).encode()


async def test_gpus_of_dcgm_exporter_come_out_under_opentelemetrys_names(tmp_path: Path, unused_tcp_port: int) -> None:
    async with serving(dcgm_page()) as server:
        scrape = {"job_name": "dcgm", "scrape_interval": "1s", "static_configs": [{"targets": [server.address]}]}
        config = {
            "receivers": {"prometheus": {"config": {"scrape_configs": [scrape]}, "presets": ["dcgm-exporter"]}},
            "exporters": {"prometheus": {"endpoint": f"127.0.0.1:{unused_tcp_port}"}},
            "service": {
                "pipelines": {"metrics": {"receivers": ["prometheus"], "exporters": ["prometheus"]}},
            },
        }
        url = f"http://127.0.0.1:{unused_tcp_port}/metrics"
        async with collector(tmp_path, config) as running, httpx.AsyncClient() as client, asyncio.timeout(60):
            await until_ready(client, url)
            page = ""
            while "hw_gpu_utilization" not in page:
                await asyncio.sleep(0.05)
                page = (await client.get(url)).text
    series = [line for line in page.splitlines() if not line.startswith("#")]
    used = [line for line in series if line.startswith("hw_gpu_utilization_ratio{")]
    assert len(used) == GPUS
    assert all(line.endswith(" 0.57") and 'hw_gpu_task="general"' in line for line in used)
    assert {f'hw_id="GPU-{gpu}"' in "".join(used) for gpu in range(GPUS)} == {True}
    assert sum(line.startswith("hw_gpu_memory_usage_bytes{") for line in series) == GPUS
    assert [line.rpartition(" ")[2] for line in series if line.startswith("hw_energy_joules_total{")] == ["5.0"] * GPUS
    assert any(line.startswith("up{") and line.endswith((" 1", " 1.0")) for line in series)
    assert "warn" not in running.log
