"""Two collectors and Prometheus, with data of a job, GPUs and failures.

The first collector is that of deploy/compose.yaml and gets the simulated job. The second one has a stand-in for the
driver of NVIDIA, and everything goes wrong in it: a GPU hangs, queries fail, a receiver crashes, no backend answers.
"""

import asyncio
import os
import sys
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from copy import deepcopy
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import httpx
import yaml

from docs.catalogue import ROOT
from tests.deploy.grafana.faulty import write_package
from tests.free_ports import free_port
from tests.interop.prometheus import Prometheus, configured, until_ready
from tests.receivers.nvml.driver import HERE, build

DEPLOY = ROOT / "deploy"
SETTINGS = yaml.safe_load((DEPLOY / "prometheus" / "prometheus.yaml").read_text())
NOWHERE = "http://127.0.0.1:1"
_TROUBLES = "gpu 2\nPowerUsage = !999\nField 185 = !999\ngpu 6\nhang = 1\n"
"""Lines of a scenario: see scenario.c."""


@dataclass(frozen=True)
class Ports:
    """The ports of a collector."""

    http: int
    page: int
    own: int

    @classmethod
    def free(cls) -> "Ports":
        return cls(free_port(), free_port(), free_port())


@dataclass(frozen=True)
class Running:
    """The servers, one with classic and one with native histograms, and the file with the spans."""

    classic: Prometheus
    native: Prometheus
    spans: Path


@asynccontextmanager
async def everything(prometheus: Path, newer: Path | None, folder: Path) -> AsyncIterator[Running]:
    """The collectors, two simulated jobs, and two servers that scrape as deploy/prometheus says.

    With `newer`, a Prometheus 3, native histograms are in that one.
    """
    compose, troubled, spans = Ports.free(), Ports.free(), folder / "spans.jsonl"
    rules = [DEPLOY / "prometheus" / name for name in SETTINGS["rule_files"]]
    async with AsyncExitStack() as stack:
        await stack.enter_async_context(_collector(folder / "compose", _compose(compose, spans), compose))
        environ = _prepared_environ(folder)
        await stack.enter_async_context(_collector(folder / "troubled", _troubled(troubled, folder), troubled, environ))
        for ports in (compose, troubled):
            job = ("-m", "examples.simulated_job", f"http://127.0.0.1:{ports.http}")
            await stack.enter_async_context(_process(folder / f"job-{ports.http}.log", *job))
        scrapes = scrape_configs(compose, troubled)

        async def serving(name: str, program: Path, *features: str, **options: bool) -> Prometheus:
            await asyncio.to_thread((folder / name).mkdir)
            enabled = ("exemplar-storage", *features)
            jobs = [job | options for job in scrapes]
            running = configured(program, folder / name, free_port(), jobs, enabled, rules=rules)
            return await stack.enter_async_context(running)

        classic = await serving("classic", prometheus)
        if newer:
            native = await serving("native", newer, scrape_native_histograms=True)
        else:
            native = await serving("native", prometheus, "native-histograms")
        yield Running(classic, native, spans)


def scrape_configs(*collectors: Ports) -> list[dict[str, Any]]:
    """The scrapes of deploy/prometheus/prometheus.yaml, with other targets and every second."""
    jobs = deepcopy(SETTINGS["scrape_configs"])
    ports: Mapping[str, Callable[[Ports], int]] = {
        "otel-zernel": lambda one: one.page,
        "otel-zernel-own": lambda one: one.own,
    }
    for job in jobs:
        port = ports[job["job_name"]]
        job["scrape_interval"] = "1s"
        job["static_configs"] = [{"targets": [f"127.0.0.1:{port(one)}" for one in collectors]}]
    return list(jobs)


def _compose(ports: Ports, spans: Path) -> list[str]:
    """The configuration of deploy/compose, on free ports. A file gets the spans in place of Tempo."""
    settings = {
        "receivers": {
            "otlp": {
                "protocols": {"grpc": {"endpoint": "127.0.0.1:0"}, "http": {"endpoint": f"127.0.0.1:{ports.http}"}}
            },
        },
        "exporters": {
            "prometheus": {"endpoint": f"127.0.0.1:{ports.page}"},
            "file": {"path": str(spans)},
        },
        "extensions": {"health_check": {"endpoint": "127.0.0.1:0"}},
        "service": {**_telemetry(ports), "pipelines": {"training": {"exporters": ["prometheus", "file"]}}},
    }
    return [str(DEPLOY / "compose" / "collector.yaml"), f"yaml:{yaml.safe_dump(settings)}"]


def _troubled(ports: Ports, folder: Path) -> list[str]:
    """A durable queue that is full refuses data, one in memory drops it, and an exporter without retries gives up."""
    storage = {"directory": str(folder / "queue"), "create_directory": True}
    settings = {
        "receivers": {
            "otlp": {"protocols": {"http": {"endpoint": f"127.0.0.1:{ports.http}"}}},
            "nvml": {"collection_interval": "1s", "initial_delay": "0s", "timeout": "500ms"},
            "host": {"collection_interval": "1s", "scrapers": {"load": {}}},
            "crashing": {},
            "failing": {"collection_interval": "1s", "initial_delay": "0s"},
        },
        "exporters": {
            "prometheus": {"endpoint": f"127.0.0.1:{ports.page}"},
            "otlp_http/full": {"endpoint": NOWHERE, "sending_queue": {"queue_size": 1}},
            "otlp_http/impatient": {"endpoint": NOWHERE, "retry_on_failure": {"enabled": False}},
            "otlp_http/durable": {
                "endpoint": NOWHERE,
                "sending_queue": {"queue_size": 1, "storage": "file_storage"},
            },
        },
        "extensions": {"file_storage": storage},
        "service": {
            **_telemetry(ports),
            "extensions": ["file_storage"],
            "pipelines": {
                "metrics/gpus": {
                    "receivers": ["nvml", "host", "crashing", "failing"],
                    "exporters": ["prometheus", "otlp_http/full", "otlp_http/impatient"],
                },
                "refusing": {"receivers": ["otlp"], "exporters": ["otlp_http/durable"]},
            },
        },
    }
    return [f"yaml:{yaml.safe_dump(settings)}"]


def _telemetry(ports: Ports) -> dict[str, Any]:
    page = {"prometheus": {"host": "127.0.0.1", "port": ports.own}}
    return {"shutdown_timeout": "0s", "telemetry": {"metrics": {"readers": [{"pull": {"exporter": page}}]}}}


def _prepared_environ(folder: Path) -> dict[str, str]:
    """Builds the driver, its scenario and the faulty receivers. Returns the variables that select them."""
    write_package(folder / "packages")
    build(folder)
    for board in (HERE / "scenarios").glob("*.board"):
        (folder / board.name).write_text(board.read_text())
    scenario = folder / "scenario.txt"
    scenario.write_text((HERE / "scenarios" / "h100x8.txt").read_text() + _TROUBLES)
    return {
        "LD_LIBRARY_PATH": str(folder),
        "NVML_STANDIN": str(scenario),
        "PYTHONPATH": str(folder / "packages"),
    }


@asynccontextmanager
async def _collector(
    folder: Path, configs: Sequence[str], ports: Ports, environ: Mapping[str, str] | None = None
) -> AsyncIterator[None]:
    arguments = [part for config in configs for part in ("--config", config)]
    run = ("-m", "otel_zernel", "run", *arguments)
    async with _process(folder.with_suffix(".log"), *run, environ=environ), httpx.AsyncClient() as client:
        await until_ready(client, f"http://127.0.0.1:{ports.page}/health")
        yield


@asynccontextmanager
async def _process(log: Path, *arguments: str, environ: Mapping[str, str] | None = None) -> AsyncIterator[None]:
    """A Python process that is killed at the end: its losses are part of the test."""
    with log.open("w") as output:
        process = await asyncio.create_subprocess_exec(
            sys.executable, *arguments, stdout=output, stderr=output, cwd=ROOT, env={**os.environ, **(environ or {})}
        )
    try:
        yield
    finally:
        process.kill()
        await process.wait()
