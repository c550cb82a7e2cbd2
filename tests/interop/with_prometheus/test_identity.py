"""Every series of a real page says whose it is, and joins with the metadata of its target work."""

import platform
import re
from collections.abc import Callable
from contextlib import ExitStack
from pathlib import Path

from tests.examples.test_live_job import training
from tests.interop.collector import collecting, page_with
from tests.interop.prometheus import Prometheus, scraping
from tests.receivers.ebpf.watching import TEST_RUN, require_ebpf
from tests.receivers.nvml.driver import HERE, build

RANKS = (0, 1)
OF_JOB = {"OTEL_SERVICE_NAME": "llm", "SLURM_JOB_ID": "4711", "WORLD_SIZE": str(len(RANKS))}


async def test_series_of_jobs_and_gpus_have_their_identity_and_target_info_is_unique(
    peer: Callable[[str], Path], tmp_path: Path, unused_tcp_port_factory: Callable[[], int]
) -> None:
    require_ebpf()
    program, run = peer("prometheus"), tmp_path.name
    page, port = unused_tcp_port_factory(), unused_tcp_port_factory()
    build(tmp_path)
    driver = {"LD_LIBRARY_PATH": str(tmp_path), "NVML_STANDIN": str(HERE / "scenarios" / "h100x8.txt")}
    with ExitStack() as jobs:
        pids = {jobs.enter_context(training(TEST_RUN, run, **OF_JOB, RANK=str(rank))) for rank in RANKS}
        async with collecting(tmp_path, page, config(page, run), driver) as client:
            waits = [f'zernel_rank="{rank}",zernel_step_kind="training"' for rank in RANKS]
            await page_with(client, *waits, "zernel_gpu_engine_active_ratio{", "zernel_dataloader_wait_seconds_count{")
            async with scraping(program, tmp_path, port, node=page) as prometheus:
                await prometheus.scraped("node")
                await check_jobs(prometheus, pids)
                await check_gpus(prometheus)
                await check_targets(prometheus)
            log = (tmp_path / "prometheus.log").read_text()
            assert not re.search("uplicate|out of order|rror on ingesting", log), log
            assert "same labels" not in (tmp_path / "log").read_text()


def config(page: int, run: str) -> dict[str, object]:
    return {
        "receivers": {
            "ebpf": {"processes": {"environment": {TEST_RUN: run}}, "rescan_interval": "1s"},
            "nvml": {"collection_interval": "500ms", "initial_delay": "0s"},
        },
        "processors": {
            "phases": {"interval": "1s"},
            "percentiles": {
                "metrics": ["zernel.*.wait", "zernel.*.latency", "zernel.*.distribution"],
                "interval": "1s",
            },
            "resource": {"attributes": [{"key": "k8s.pod.name", "value": "llm-0"}]},
        },
        "exporters": {"prometheus": {"endpoint": f"127.0.0.1:{page}"}},
        "service": {
            "pipelines": {
                "training": {
                    "receivers": ["ebpf", "nvml"],
                    "processors": ["phases", "percentiles", "resource"],
                    "exporters": ["prometheus"],
                }
            }
        },
    }


async def check_jobs(prometheus: Prometheus, pids: set[int]) -> None:
    for rank, name in enumerate(("zernel_dataloader_wait_seconds_count", "zernel_phase_time_seconds_total")):
        found = [labels for labels, _ in await prometheus.series(f'{name}{{job="llm"}}')]
        assert {int(labels["process_pid"]) for labels in found} == pids, rank
        assert {labels["zernel_rank"] for labels in found} == {str(rank) for rank in RANKS}
        assert all(labels["host_name"] == platform.node() for labels in found)
        assert all(labels["process_executable_name"].startswith("python") for labels in found)
        assert all("4711" in labels["zernel_job_id"] for labels in found)
        assert all(labels["k8s_pod_name"] == "llm-0" for labels in found)
        assert {labels["instance"] for labels in found} == {f"{platform.node()}/{pid}" for pid in pids}


async def check_gpus(prometheus: Prometheus) -> None:
    for name in ("hw_power_watts", "zernel_gpu_power_distribution_watts_count", "zernel_gpu_info"):
        found = [labels for labels, _ in await prometheus.series(name)]
        assert {(labels["hw_name"], labels["zernel_gpu_index"]) for labels in found} == {
            (f"GPU {index}", str(index)) for index in range(8)
        }, name
        assert len({labels["hw_id"] for labels in found}) == len(found) == 8
        assert {(one["hw_type"], one["hw_model"], one["host_name"], one["k8s_pod_name"]) for one in found} == {
            ("gpu", "NVIDIA H100 80GB HBM3", platform.node(), "llm-0")
        }
    serial = "hw_power_watts * on (hw_id) group_left (hw_serial_number) zernel_gpu_info"
    assert len({labels["hw_serial_number"] for labels, _ in await prometheus.series(serial)}) == 8


async def check_targets(prometheus: Prometheus) -> None:
    assert await prometheus.value("max(count by (job, instance) (target_info))") == 1
    assert await prometheus.value('count(target_info{job="llm",process_pid!=""})') == len(RANKS)
    join = "zernel_dataloader_wait_seconds_count * on (job, instance) group_left (zernel_world_size) target_info"
    assert [labels["zernel_world_size"] for labels, _ in await prometheus.series(join)] == ["2", "2"]
    assert await prometheus.value('count(target_info{job="otel-zernel"})') == 1
