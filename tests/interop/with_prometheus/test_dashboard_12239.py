"""Grafana's dashboard 12239 ("NVIDIA DCGM Exporter Dashboard") reads the page of `naming: dcgm` unchanged.

The expressions are facts from the dashboard: those of its revision on grafana.com, which choose by `instance`, and
those of the newer file in dcgm-exporter's repository, which choose by `Hostname`. Grafana fills in the variables.
"""

import platform
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.interop.collector import collecting, page_with
from tests.interop.prometheus import Prometheus, scraping
from tests.receivers.nvml.driver import HERE, build

Peer = Callable[[str], Path]

GPUS = range(8)
TEMPERATURE, WATTS, SM_HERTZ, MIB = 61.0, 698.21, 1695e6, 64568033280 / 2**20
"""The values of every board in the scenario h100x8."""
CHOSEN = 'instance=~"$instance", gpu=~"$gpu"'
PUBLISHED = {
    f"DCGM_FI_DEV_GPU_TEMP{{{CHOSEN}}}": [TEMPERATURE] * 8,
    f"avg(DCGM_FI_DEV_GPU_TEMP{{{CHOSEN}}})": [TEMPERATURE],
    f"DCGM_FI_DEV_POWER_USAGE{{{CHOSEN}}}": [WATTS] * 8,
    f"sum(DCGM_FI_DEV_POWER_USAGE{{{CHOSEN}}})": [8 * WATTS],
    f"DCGM_FI_DEV_SM_CLOCK{{{CHOSEN}}} * 1000000": [SM_HERTZ] * 8,
    f"DCGM_FI_DEV_GPU_UTIL{{{CHOSEN}}}": [100.0] * 8,
    f"DCGM_FI_PROF_PIPE_TENSOR_ACTIVE{{{CHOSEN}}}": [0.6175] * 8,
    f"DCGM_FI_DEV_FB_USED{{{CHOSEN}}}": [MIB] * 8,
}
HOST = 'Hostname=~"$Hostname", gpu=~"$gpu"'
NEWER = {
    f"max(DCGM_FI_DEV_GPU_TEMP{{{HOST}}}) by (Hostname, gpu, uuid)": [TEMPERATURE] * 8,
    f"avg(DCGM_FI_DEV_GPU_TEMP{{{HOST}}})": [TEMPERATURE],
    f"max(DCGM_FI_DEV_POWER_USAGE{{{HOST}}}) by (Hostname, gpu, uuid)": [WATTS] * 8,
    f"sum(max(DCGM_FI_DEV_POWER_USAGE{{{HOST}}}) by (gpu))": [8 * WATTS],
    f"max(DCGM_FI_DEV_SM_CLOCK{{{HOST}}} * 1000000) by (Hostname, UUID, gpu)": [SM_HERTZ] * 8,
    f"max(DCGM_FI_PROF_GR_ENGINE_ACTIVE{{{HOST}}}) by (Hostname, gpu, GPU_I_ID, GPU_I_PROFILE)": [0.995] * 8,
    f"max(DCGM_FI_PROF_PIPE_TENSOR_ACTIVE{{{HOST}}}) by (Hostname, gpu, GPU_I_ID, GPU_I_PROFILE)": [0.6175] * 8,
    f"max(DCGM_FI_DEV_FB_USED{{{HOST}}}) by (Hostname, gpu, GPU_I_ID, GPU_I_PROFILE)": [MIB] * 8,
}


async def test_every_expression_of_the_dashboard_has_the_values_of_eight_gpus(
    peer: Peer, tmp_path: Path, unused_tcp_port_factory: Callable[[], int]
) -> None:
    program, page, port = peer("prometheus"), unused_tcp_port_factory(), unused_tcp_port_factory()
    build(tmp_path)
    driver = {"LD_LIBRARY_PATH": str(tmp_path), "NVML_STANDIN": str(HERE / "scenarios" / "h100x8.txt")}
    async with collecting(tmp_path, page, config(page), driver) as client:
        text = await page_with(client, "DCGM_FI_PROF_PIPE_TENSOR_ACTIVE{")
        assert "# TYPE DCGM_FI_DEV_TOTAL_ENERGY_CONSUMPTION counter\n" in text
        async with scraping(program, tmp_path, port, gpus=page) as prometheus:
            await prometheus.scraped("gpus")
            await prometheus.until("count(DCGM_FI_PROF_PIPE_TENSOR_ACTIVE)", 8)
            for expression, values in (PUBLISHED | NEWER).items():
                assert await answers(prometheus, expression, page) == pytest.approx(values), expression
            await check_labels(prometheus)


def config(page: int) -> dict[str, object]:
    return {
        "receivers": {"nvml": {"collection_interval": "500ms", "initial_delay": "0s"}},
        "processors": {"resource": {"attributes": [{"key": "k8s.pod.name", "value": "trainer-0"}]}},
        "exporters": {
            "prometheus": {"endpoint": f"127.0.0.1:{page}", "naming": "dcgm", "dcgm_hostname_label": "Hostname"}
        },
        "service": {
            "pipelines": {
                "metrics": {"receivers": ["nvml"], "processors": ["resource"], "exporters": ["prometheus"]},
            }
        },
    }


async def answers(prometheus: Prometheus, expression: str, page: int) -> list[float]:
    """The values of an expression, after Grafana has replaced the variables: all GPUs of this host."""
    variables = {"$instance": f"127.0.0.1:{page}", "$Hostname": platform.node(), "$gpu": "|".join(map(str, GPUS))}
    for name, value in variables.items():
        expression = expression.replace(name, value)
    return [value for _, value in await prometheus.series(expression)]


async def check_labels(prometheus: Prometheus) -> None:
    """The labels of dcgm-exporter, and no others; what the dashboard's variables offer."""
    [(labels, free)] = await prometheus.series('DCGM_FI_DEV_FB_FREE{gpu="3"}')
    assert labels == {
        "__name__": "DCGM_FI_DEV_FB_FREE",
        "DCGM_FI_DRIVER_VERSION": "535.129.03",
        "Hostname": platform.node(),
        "UUID": "GPU-5fd4f087-86f3-7a43-b711-000000000003",
        "device": "nvidia3",
        "gpu": "3",
        "instance": labels["instance"],
        "job": "gpus",
        "modelName": "NVIDIA H100 80GB HBM3",
        "pci_bus_id": "00000000:3b:00.0",
        "pod": "trainer-0",
    }
    assert free == 20401094656 / 2**20
    assert await prometheus.value('DCGM_FI_DEV_TOTAL_ENERGY_CONSUMPTION{gpu="0"}') == 98765432100
    assert await prometheus.series('{__name__=~"hw_power.*|hw_temperature_celsius"}') == []
