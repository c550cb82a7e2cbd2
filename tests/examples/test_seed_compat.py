"""examples/seed_compat.yaml serves the families of the systems whose dashboards it feeds, value by value."""

import asyncio
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import httpx
import pytest
from prometheus_client.parser import text_string_to_metric_families

from tests.examples.seed_data import COLLECTIVES, GIB, READINGS, recorded
from tests.interop.collector import collecting

EXAMPLE = Path(__file__).parents[2] / "examples" / "seed_compat.yaml"
Labels = frozenset[tuple[str, str]]
Page = dict[tuple[str, Labels], float]

TYPES = {
    "zernel_gpu_memory_used_bytes": "gauge",
    "zernel_gpu_memory_peak_bytes": "gauge",
    "zernel_cuda_launch_latency_seconds": "summary",
    "zernel_nccl_collective_duration_seconds": "summary",
    "zernel_dataloader_wait_seconds": "summary",
    "zernel_distributed_sync_wait_seconds": "summary",
    "zernel_scheduler_tasks": "gauge",
    "zernel_scheduler_phase_transitions": "counter",
    "zernel_scheduler_phase_tasks": "gauge",
    "zernel_scheduler_phase_time_pct": "gauge",
}
"""The parser removes `_total` from the name of a counter."""
VOTES = 2
"""A process stays in its first phase for this many evaluations: the third equal vote in a row changes it."""
EVALUATIONS = READINGS - 5
"""Those in the last report. It waits 2 s for late data, 2 readings for reports of lost events, and each evaluation for
the reading after it."""


def expected() -> Page:
    """The values that follow from the data."""
    page: Page = {}

    def add(name: str, value: float, **labels: str) -> None:
        page[f"zernel_{name}", frozenset(labels.items())] = value

    def add_summary(name: str, longest_s: float, **labels: str) -> None:
        for quantile, value in {"0.5": 0.5, "0.99": 0.99}.items():
            add(name, value * longest_s, **labels, quantile=quantile)
        add(f"{name}_count", 100 * READINGS, **labels)
        add(f"{name}_sum", 50.5 * longest_s * READINGS, **labels)

    for pid, gpu, used, peak in (("101", "0", 3, 5), ("102", "1", 7, 7), ("104", "unknown", 1, 2)):
        add("gpu_memory_used_bytes", used * GIB, pid=pid, gpu_id=gpu)
        add("gpu_memory_peak_bytes", peak * GIB, pid=pid, gpu_id=gpu)
    add_summary("cuda_launch_latency_seconds", 100e-6, pid="101")
    add_summary("cuda_launch_latency_seconds", 500e-6, pid="104")
    add_summary("dataloader_wait_seconds", 20e-3, pid="101")
    add_summary("distributed_sync_wait_seconds", 10e-3, pid="102")
    for operation, longest_ns in COLLECTIVES.items():
        add_summary("nccl_collective_duration_seconds", longest_ns / 1e9, op=operation)
    add("scheduler_tasks", 5, type="total")
    add("scheduler_tasks", 4, type="ml")
    add("scheduler_phase_transitions_total", 4)
    for phase in ("data_loading", "nccl_collective", "gpu_compute", "optimizer_step"):
        add("scheduler_phase_tasks", 1, phase=phase)
        add("scheduler_phase_time_pct", 25 * (EVALUATIONS - VOTES) / EVALUATIONS, phase=phase)
    add("scheduler_phase_tasks", 0, phase="unknown")
    add("scheduler_phase_time_pct", 100 * VOTES / EVALUATIONS, phase="unknown")
    return page


async def test_every_family_has_the_names_types_labels_and_values_of_the_data(
    tmp_path: Path, unused_tcp_port: int
) -> None:
    (tmp_path / "data.jsonl").write_text(recorded())
    async with collecting(tmp_path, unused_tcp_port, fed_by(tmp_path, unused_tcp_port), example=EXAMPLE) as client:
        page = await page_of(client, len(expected()))
        assert page.keys() == expected().keys()
        assert {key: page[key] for key in page} == pytest.approx(expected(), rel=0.01)
        families = text_string_to_metric_families((await client.get("/metrics")).text)
        assert {family.name: family.type for family in families} == TYPES
        assert (await client.get("/health")).text == "ok"
        assert dict(json_samples((await client.get("/json")).json())) == page


async def test_with_the_lines_of_hosts_each_series_has_its_host(tmp_path: Path, unused_tcp_port: int) -> None:
    for host in ("node-1", "node-2"):
        (tmp_path / f"{host}.jsonl").write_text(recorded(host))
    example = tmp_path / "seed_compat.yaml"
    text = EXAMPLE.read_text()
    example.write_text(text.replace("# - host.name", "- host.name"))
    assert text.count("# - host.name") == 3
    async with collecting(tmp_path, unused_tcp_port, fed_by(tmp_path, unused_tcp_port), example=example) as client:
        page = await page_of(client, 2 * len(expected()))
    for host in ("node-1", "node-2"):
        own = {("host", host)}
        of_host = {(name, labels - own): value for (name, labels), value in page.items() if own <= labels}
        assert of_host.keys() == expected().keys()
        assert of_host == pytest.approx(expected(), rel=0.01)


def fed_by(folder: Path, port: int) -> dict[str, Any]:
    """The changes to the example: recorded data in place of the receivers, and a free port."""
    return {
        "receivers": {"otlp_json_file": {"include": [f"{folder}/*.jsonl"]}, "ebpf": None, "nvml": None},
        "exporters": {"prometheus": {"endpoint": f"127.0.0.1:{port}"}},
        "service": {"pipelines": {"training": {"receivers": ["otlp_json_file"]}}},
    }


async def page_of(client: httpx.AsyncClient, series: int) -> Page:
    """The samples of the page, once it has this many and all of the last reading."""
    async with asyncio.timeout(60):
        while True:
            families = text_string_to_metric_families((await client.get("/metrics")).text)
            found = [sample for family in families for sample in family.samples]
            samples = {(one.name, frozenset(one.labels.items())): one.value for one in found}
            counts = [value for (name, _), value in samples.items() if name.endswith("_count")]
            if len(samples) >= series and all(count == 100 * READINGS for count in counts):
                return samples
            await asyncio.sleep(0.1)


def json_samples(families: Mapping[str, Any]) -> Iterator[tuple[tuple[str, Labels], float]]:
    for family in families.values():
        for one in family["samples"]:
            yield (one["name"], frozenset(one["labels"].items())), one["value"]
