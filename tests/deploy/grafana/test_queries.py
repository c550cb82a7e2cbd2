"""Every query of every dashboard has data: with classic histograms in Prometheus 2, with native ones in Prometheus 3.

Without Prometheus 3, Debian's Prometheus 2 has both.
"""

import asyncio
import json
import math
import os
import platform
import re
import sys
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Collection, Iterator, Mapping, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from copy import deepcopy
from dataclasses import dataclass
from functools import partial
from itertools import product
from pathlib import Path
from typing import Any

import httpx
import pytest
import yaml

from deploy.grafana.boards import DASHBOARDS
from deploy.grafana.boards.node import NODE
from deploy.grafana.panels import Dashboard, Panel, Query, Variable
from deploy.grafana.rendering import text_of
from docs.catalogue import ROOT
from tests.free_ports import free_port
from tests.interop.collector import collecting
from tests.interop.installed import find_peer
from tests.interop.prometheus import Prometheus, configured, find_prometheus_3, scraping, until_ready
from tests.receivers.nvml.driver import HERE, build

_SOURCE = """
from otel_zernel.component import Receiver, Scraper

class CrashingReceiver(Receiver):
    "Crashes."

    async def run(self, emit):
        raise RuntimeError("a crash")

class FailingReceiver(Scraper):
    "Reads nothing."

    def scrape(self):
        raise OSError("nothing to read")
"""
_METADATA = "Metadata-Version: 2.1\nName: faulty\nVersion: 1\n"
_ENTRY = "[otel_zernel.receivers]\ncrashing = faulty:CrashingReceiver\nfailing = faulty:FailingReceiver\n"


def write_package(folder: Path) -> None:
    """Writes the package and its entry points into a folder for PYTHONPATH."""
    (folder / "faulty-1.dist-info").mkdir(parents=True)
    (folder / "faulty.py").write_text(_SOURCE)
    (folder / "faulty-1.dist-info" / "METADATA").write_text(_METADATA)
    (folder / "faulty-1.dist-info" / "entry_points.txt").write_text(_ENTRY)


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
        job["static_configs"] = [{"targets": [f"127.0.0.1:{port(collector)}" for collector in collectors]}]
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


CHOICES = {"job": ("pretrain",), "host": ("node-1", platform.node())}
"""The values of variables with a single value: of the simulated job, and of the stand-in for the driver."""
NEEDS_AN_EVENT = {"XID errors"}
"""Panels without data of the stand-in: it raises an XID only within its process. The simulated job has one."""
BUILT_IN = {"$__rate_interval": "10s", "$__interval": "1s", "$__range": "1m"}
EXPECTED_ALERTS = {
    *("CollectorLosesData", "CollectorRefusesData", "CollectorScrapesFail", "GpuXidWarning", "GpuThrottled"),
    *("GpuLinkDown", "TrainingStraggler", "TrainingRankDied"),
}
PATIENCE = 120
"""Seconds."""


Missing = Callable[[], Awaitable[Collection[str]]]


async def test_every_query_has_data_and_every_rule_is_evaluated(tmp_path: Path) -> None:
    async with everything(find_peer("prometheus"), newest_prometheus(), tmp_path) as running:
        await until_empty(missing_queries(running.classic, but="native"))
        await until_empty(missing_queries(running.native, but="classic"))
        for server in (running.classic, running.native):
            await until_empty(partial(recordings_without_data, server))
            await until_empty(partial(related_without_data, server))
        await until_empty(lambda: missing_alerts(running.classic))
        assert await errors_of_rules(running.classic) == {}
        await until_empty(lambda: missing_traces(running))
        check_traces(running.spans.read_text())


def newest_prometheus() -> Path | None:
    """Prometheus 3, if it is installed."""
    try:
        return find_prometheus_3()
    except pytest.skip.Exception:
        return None


async def test_the_recorded_node_shows_its_gpus(tmp_path: Path, unused_tcp_port: int) -> None:
    """The recording has the fields of dcgm-exporter's default file: no activity by the profiler, no errors."""
    wanted = {"Utilization", "Memory in use", "Power", "Temperature", "SM clock", "Energy"}
    panels = [
        (panel, panel.queries[0].expression) for row in NODE.rows for panel in row.panels if panel.title in wanted
    ]
    assert len(panels) == len(wanted)
    config = {
        "exporters": {"prometheus": {"endpoint": f"127.0.0.1:{unused_tcp_port}"}},
        "extensions": {"health_check": {"endpoint": "127.0.0.1:0"}},
    }
    percentiles = ROOT / "examples" / "percentiles.yaml"
    async with (
        collecting(tmp_path, unused_tcp_port, config, example=percentiles),
        scraping(find_peer("prometheus"), tmp_path, free_port(), gpus=unused_tcp_port) as server,
    ):

        async def missing() -> Collection[str]:
            chosen = {"host": "train-node-01"}
            return [panel.title for panel, query in panels if not await has_data(server, NODE, panel, query, chosen)]

        await until_empty(missing)


async def until_empty(missing: Missing) -> None:
    """Returns when nothing is missing any more."""
    until = time.monotonic() + PATIENCE
    while left := await missing():
        assert time.monotonic() < until, "\n".join(left)
        await asyncio.sleep(0.5)


def missing_queries(server: Prometheus, but: str) -> Missing:
    """Asks every query until it has had data once, but those for the other kind of histograms."""
    left = [
        (board, panel, query.expression, values) for board, panel, query, values in QUERIES if query.histograms != but
    ]

    async def ask() -> Collection[str]:
        nonlocal left
        left = [one for one in left if not await has_data(server, *one)]
        return [f"{board.uid} / {panel.title} {values}: {query}" for board, panel, query, values in left]

    return ask


def _queries() -> Iterator[tuple[Dashboard, Panel, Query, Mapping[str, str]]]:
    """Each query of Prometheus, with the values of the variables."""
    for board in DASHBOARDS:
        single = [variable.name for variable in board.variables if not variable.several]
        for values in product(*(CHOICES[name] for name in single)):
            for row in board.rows:
                for panel in row.panels:
                    if panel.kind != "traces" and not (platform.node() in values and panel.title in NEEDS_AN_EVENT):
                        for query in panel.queries:
                            yield board, panel, query, dict(zip(single, values, strict=True))


QUERIES = list(_queries())


async def has_data(server: Prometheus, board: Dashboard, panel: Panel, query: str, chosen: Mapping[str, str]) -> bool:
    """Whether a query has a sample that is a number, after its variables are resolved as Grafana does."""
    values = dict(chosen)
    for variable in board.variables:
        options = await options_of(server, variable, values)
        if variable.several:
            values[variable.name] = "|".join(options)
        elif values[variable.name] not in options:
            return False
    return any(not math.isnan(value) for _, value in await server.series(resolved(query, values)))


async def options_of(server: Prometheus, variable: Variable, values: Mapping[str, str]) -> list[str]:
    """The values that a variable offers. If several can be chosen, they are escaped as in a regular expression."""
    found = await server.get(f"label/{variable.label}/values", **{"match[]": resolved(variable.metric, values)})
    return [re.escape(one).replace("\\", "\\\\") if variable.several else one for one in found]


def resolved(text: str, values: Mapping[str, str]) -> str:
    """The text with the variables of Grafana replaced. The longest names come first."""
    named = {**BUILT_IN, **{f"${name}": value for name, value in values.items()}}
    for name in sorted(named, key=len, reverse=True):
        text = text.replace(name, named[name])
    assert "$" not in text, text
    return text


async def recordings_without_data(server: Prometheus) -> Collection[str]:
    """The recording rules that have no result yet."""
    names = [rule["name"] for rule in await _rules(server) if rule["type"] == "recording"]
    assert names
    return [name for name in names if not await server.series(name)]


async def related_without_data(server: Prometheus) -> Collection[str]:
    """The queries of a span's link "Related metrics" that have no data of the span's job yet."""
    path = DEPLOY / "grafana" / "provisioning" / "datasources" / "otel-zernel.yaml"
    sources = yaml.safe_load(path.read_text())["datasources"]
    (link,) = (source["jsonData"]["tracesToMetrics"] for source in sources if "tracesToMetrics" in source["jsonData"])
    assert {(tag["key"], tag["value"]) for tag in link["tags"]} == {("service.name", "job")}
    queries = [one["query"].replace("$$__tags", 'job="pretrain"') for one in link["queries"]]
    assert queries
    return [query for query in queries if not any(not math.isnan(value) for _, value in await server.series(query))]


async def missing_alerts(server: Prometheus) -> Collection[str]:
    """The alerts that are neither pending nor firing, although the data has reasons for them."""
    active = {alert["labels"]["alertname"] for alert in (await server.get("alerts"))["alerts"]}
    return EXPECTED_ALERTS - active


async def errors_of_rules(server: Prometheus) -> dict[str, str]:
    """The errors of rules whose evaluation failed."""
    return {rule["name"]: rule["lastError"] for rule in await _rules(server) if rule["health"] == "err"}


async def _rules(server: Prometheus) -> list[dict[str, str]]:
    return [rule for group in (await server.get("rules"))["groups"] for rule in group["rules"]]


async def missing_traces(running: Running) -> Collection[str]:
    """The traces of the points on the graph of step durations that were not exported yet."""
    query = 'zernel_step_duration_seconds_bucket{job="pretrain"}'
    found = await running.classic.get(
        "query_exemplars", query=query, start=str(time.time() - 600), end=str(time.time())
    )
    traces = {one["labels"]["trace_id"] for series in found for one in series["exemplars"]}
    return traces - exported_traces(running.spans) if traces else ["an exemplar"]


def exported_traces(spans: Path) -> set[str]:
    """The ids in hexadecimal."""
    return set(re.findall(r'"traceId":"(\w+)"', spans.read_text()))


def check_traces(spans: str) -> None:
    """The names and the attributes in TraceQL are those of exported spans."""
    queries = [
        query.expression
        for board in DASHBOARDS
        for row in board.rows
        for panel in row.panels
        if panel.kind == "traces"
        for query in panel.queries
    ]
    assert queries
    keys = set(re.findall(r'"key":"([\w.]+)"', spans))
    names = set(re.findall(r'"name":"([^"]+)","kind"', spans))
    for query in queries:
        assert set(re.findall(r"(?:span|resource)\.([\w.]+\w)", query)) <= keys, query
        assert {
            part for text in re.findall(r'(?<![.\w])name =~? "([^"]+)"', query) for part in text.split("|")
        } <= names, query


@pytest.mark.parametrize("board", DASHBOARDS, ids=lambda board: str(board.uid))
def test_the_file_is_what_make_docs_writes(board: Dashboard) -> None:
    path = DEPLOY / "grafana" / "dashboards" / f"{board.uid}.json"
    assert path.read_text() == text_of(board), "run make docs"
    assert json.loads(path.read_text())["uid"] == board.uid
