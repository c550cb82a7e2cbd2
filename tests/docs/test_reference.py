"""docs/reference.md: its tables are executed, or compared with the code, in both directions.

Links between documents lead to files.
"""

import asyncio
import contextlib
import json
import re
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import httpx
import pytest
import yaml

from docs import metrics as page
from docs.catalogue import ROOT
from otel_zernel.config.load import load
from otel_zernel.config.schema import ServiceSection
from otel_zernel.config.telemetry import PrometheusPull
from otel_zernel.config.yaml12 import read_yaml
from otel_zernel.engine import process as collector_process
from otel_zernel.errors import ConfigError
from otel_zernel.testing import until
from otel_zernel.types import format_duration, parse_duration
from otel_zernel_exporters.prometheus import PrometheusExporter
from otel_zernel_exporters.websocket import WebSocketExporter
from otel_zernel_extensions.api import ApiExtension
from otel_zernel_extensions.health_check import HealthCheckExtension
from otel_zernel_receivers.heartbeat import HeartbeatReceiver
from otel_zernel_receivers.otlp import OtlpReceiver
from tests.collectors import collector

PAGE = (ROOT / "docs" / "reference.md").read_text("utf-8")
NOUNS = ("metric_points", "spans", "log_records", "profile_samples")


def rows(heading: str) -> list[list[str]]:
    """The rows of the first table after a heading, without its head. Back quotes are removed."""
    (section,) = re.findall(rf"^## {re.escape(heading)}\n(.*?)(?=^## |\Z)", PAGE, re.MULTILINE | re.DOTALL)
    (table,) = re.findall(r"\|---.*?\n((?:\|.*\n)+)", section)[:1]
    return [[cell.strip().strip("`") for cell in re.split(r"(?<!\\)\|", line)[1:-1]] for line in table.splitlines()]


# The service section


def test_the_defaults_of_the_service_section_are_those_of_the_code() -> None:
    service = ServiceSection().model_dump(mode="json")
    for key, default, _ in rows("The service section"):
        if default and key not in ("telemetry::metrics::readers", "pipelines::ID::processors"):
            value: Any = service
            for part in key.split("::"):
                value = value[part]
            assert yaml.safe_load(default) == value, key


def test_it_names_every_key_of_the_service_section() -> None:
    documented = {key.replace("`", "").split(",")[0] for key, *_ in rows("The service section")}

    def keys(tree: dict[str, Any], path: str = "") -> set[str]:
        return set().union(
            *(
                keys(value, f"{path}{key}::") if isinstance(value, dict) and value else {f"{path}{key}"}
                for key, value in tree.items()
            )
        )

    assert keys(ServiceSection().model_dump(mode="json")) <= documented


@pytest.mark.parametrize("block", re.findall(r"```yaml\n(service:.*?)```", PAGE, re.DOTALL))
def test_its_examples_of_the_service_section_are_valid(block: str) -> None:
    service = yaml.safe_load(block.replace("${env:TOKEN}", "x"))["service"]
    assert ServiceSection.model_validate(service) != ServiceSection()


# Own metrics


def own_metrics() -> set[str]:
    return {name.replace(".", "_") for _, table in page.tables() for name, metric in table.items() if metric.own}


def test_its_own_metrics_exist() -> None:
    names = {name for row in rows("Own metrics") for name in re.findall(r"\w+\*?", row[0])}
    assert {name.replace("*", noun) for name in names for noun in (NOUNS if "*" in name else ("",))} <= own_metrics()


async def test_every_metric_on_the_page_of_a_real_collector_is_documented(tmp_path: Path, unused_tcp_port: int) -> None:
    """A run with a bad row, a filter, a limiter and a queue. The page of metrics has each of them."""
    (tmp_path / "in.csv").write_text("timestamp,uuid,power.draw [W]\n2026/01/01 00:00:00,GPU-1,5 W\nbad\n")
    settings = {
        "receivers": {"csv": {"files": [str(tmp_path / "in.csv")], "follow": True}},
        "processors": {
            "memory_limiter": {"limit_mib": 4000},
            "filter": {"metrics": {"datapoint": ["value_double > 1000.0"]}},
        },
        "exporters": {"otlp_http": {"endpoint": "http://127.0.0.1:1"}, "file": {"path": str(tmp_path / "out.jsonl")}},
        "service": {
            "telemetry": {"metrics": {"readers": [{"pull": {"exporter": {"prometheus": {"port": unused_tcp_port}}}}]}},
            "pipelines": {
                "metrics": {
                    "receivers": ["csv"],
                    "processors": ["memory_limiter", "filter"],
                    "exporters": ["file", "otlp_http"],
                }
            },
            "shutdown_timeout": "0s",
        },
    }
    async with collector(tmp_path, settings), httpx.AsyncClient() as client:
        text = ""

        async def fetch() -> None:
            nonlocal text
            while "zernel_dropped_items" not in text or "otelcol_exporter_sent" not in text:
                with contextlib.suppress(httpx.TransportError):
                    text = (await client.get(f"http://localhost:{unused_tcp_port}/metrics")).text
                await asyncio.sleep(0.05)

        await asyncio.wait_for(fetch(), 60)
    found = set(re.findall(r"^# TYPE (\w+) ", text, re.MULTILINE)) - {"target_info"}
    assert found >= {"zernel_dropped_items", "otelcol_process_uptime", "otelcol_exporter_queue_size"}
    assert found - own_metrics() == set()
    described = dict(re.findall(r"^# HELP (\w+) (.+)$", text, re.MULTILINE))
    assert described.keys() >= found, "each metric has a description"


# Ports, signals and exit codes


def test_its_ports_are_the_defaults() -> None:
    otlp = OtlpReceiver.Config.model_validate({"protocols": {"grpc": {}, "http": {}}}).model_dump(mode="json")
    endpoints = {
        "receivers::otlp::protocols::grpc::endpoint": otlp["protocols"]["grpc"]["endpoint"],
        "receivers::otlp::protocols::http::endpoint": otlp["protocols"]["http"]["endpoint"],
        "receivers::heartbeat::endpoint": str(HeartbeatReceiver.Config().model_dump(mode="json")["endpoint"]),
        "service::telemetry::metrics::readers": f"{PrometheusPull().host}:{PrometheusPull().port}",
        "exporters::prometheus::endpoint": str(PrometheusExporter.Config().model_dump(mode="json")["endpoint"]),
        "exporters::websocket::endpoint": str(WebSocketExporter.Config().model_dump(mode="json")["endpoint"]),
        "extensions::api::endpoint": str(ApiExtension.Config().model_dump(mode="json")["endpoint"]),
        "extensions::health_check::endpoint": str(HealthCheckExtension.Config().model_dump(mode="json")["endpoint"]),
    }
    assert {setting: f"localhost:{port}" for port, _, setting in rows("Ports")} == endpoints


def test_its_times_of_a_stop_are_those_of_the_code() -> None:
    text = " ".join(cell for row in rows("Signals") for cell in row)
    assert f"{collector_process.GRACE:g} s later" in text
    assert f"{collector_process._SAME_SIGNAL:g} s later" in text


def otel_zernel(*arguments: str) -> int:
    command = [sys.executable, "-m", "otel_zernel", *arguments]
    return subprocess.run(command, capture_output=True, check=False, timeout=60).returncode


MINIMAL = "yaml:{receivers: {otlp: {protocols: {http: {endpoint: 'localhost:0'}}}}, exporters: {debug: {}}, service: {telemetry: {metrics: {level: none}}, pipelines: {m: {receivers: [otlp], exporters: [debug]}}}}"  # noqa: E501
COMMANDS: dict[str, tuple[int, list[str]]] = {
    "a valid configuration": (0, ["validate", "--config", MINIMAL]),
    "a mistake": (1, ["validate", "--config", MINIMAL, "--set", "exporters.debug.verbose=1"]),
    "a wrong command line": (2, ["run", "--colour"]),
    "no such port": (1, ["run", "--config", MINIMAL, "--set", "receivers.otlp.protocols.http.endpoint=203.0.113.1:1"]),
    "no directory of queues": (1, ["queue", "inspect", "/nonexistent"]),
}


@pytest.mark.parametrize("case", COMMANDS)
def test_commands_exit_as_documented(case: str) -> None:
    expected, arguments = COMMANDS[case]
    assert str(expected) in {row[0] for row in rows("Exit codes")}
    assert otel_zernel(*arguments) == expected


@pytest.mark.parametrize("received", [signal.SIGTERM, signal.SIGINT])
async def test_a_signal_exits_with_0(tmp_path: Path, received: signal.Signals) -> None:
    async with collector(tmp_path, yaml.safe_load(MINIMAL.removeprefix("yaml:"))) as running:
        await until(lambda: "Everything is ready" in running.log, within=60)
        running.process.send_signal(received)
        assert await running.ended() == 0


@pytest.mark.parametrize("received", [signal.SIGTERM, signal.SIGINT])
async def test_a_second_signal_exits_with_128_and_its_number(tmp_path: Path, received: signal.Signals) -> None:
    """A row waits for a backend that is down, so the first signal does not end the collector."""
    (tmp_path / "in.csv").write_text("timestamp,uuid,power.draw [W]\n2026/01/01 00:00:00,GPU-1,5 W\n")
    settings = yaml.safe_load(MINIMAL.removeprefix("yaml:"))
    settings["receivers"]["csv"] = {"files": [str(tmp_path / "in.csv")], "follow": True}
    settings["exporters"]["otlp_http"] = {"endpoint": "http://127.0.0.1:1"}
    settings["service"]["pipelines"]["m"] = {"receivers": ["csv"], "exporters": ["otlp_http"]}
    async with collector(tmp_path, settings) as running:
        await until(lambda: "otlp_http" in running.log, within=60)  # the first attempt has failed
        running.process.send_signal(received)
        await until(lambda: "shutting down" in running.log, within=60)
        while running.process.poll() is None:  # a signal right after the first one is ignored
            running.process.send_signal(received)
            await asyncio.sleep(0.02)
        assert running.process.returncode == 128 + received
    assert str(128 + received) in {row[0] for row in rows("Exit codes")}


# The rules of configuration files


@pytest.mark.parametrize(("text", "seconds"), rows("Durations"))
def test_its_durations_are_read_as_documented(text: str, seconds: str) -> None:
    if seconds == "error":
        with pytest.raises(ValueError, match="duration"):
            parse_duration(int(text) if text.isdigit() else text)
    else:
        assert parse_duration(text) == float(seconds)
        assert parse_duration(format_duration(float(seconds))) == float(seconds)


ENVIRONMENT = {"NODE": "gpu-7", "PORT": "4317", "ID": "0123", "EMPTY": ""}


def loaded(*texts: str) -> Any:
    return load([f"yaml:{text}" for text in texts], [], ENVIRONMENT).tree


@pytest.mark.parametrize(("value", "result", "reason"), rows("References: `${...}`"))
def test_its_references_become_what_it_says(value: str, result: str, reason: str) -> None:
    text = json.dumps({"key": value})
    if result == "error":
        with pytest.raises(ConfigError, match="schemes"):
            loaded(text)
    else:
        assert loaded(text) == {"key": json.loads(result)}, reason


@pytest.mark.parametrize(("first", "second", "result"), rows("Merging"))
def test_its_merges_have_the_documented_result(first: str, second: str, result: str) -> None:
    assert loaded(first, second) == read_yaml(result, "").value


@pytest.mark.parametrize(("override", "result"), rows("`--set`"))
def test_its_overrides_have_the_documented_result(override: str, result: str) -> None:
    base = "yaml:{a: {b: 1, list: [x, y]}}"
    if result == "error":
        with pytest.raises(ConfigError):
            load([base], [override], ENVIRONMENT)
    else:
        assert load([base], [override], ENVIRONMENT).tree == read_yaml(result, "").value


# Commands and health


def test_it_names_every_command() -> None:
    ended = subprocess.run([sys.executable, "-m", "otel_zernel", "--help"], capture_output=True, text=True, check=True)
    listed = re.findall(r"^    ([a-z][a-z-]+)\b", ended.stdout, re.MULTILINE)
    assert {row[0] for row in rows("Commands")} == set(listed)


def test_its_settings_of_the_health_are_those_of_the_code() -> None:
    config = HealthCheckExtension.Config()
    assert f"`unhealthy_after` is set (default `{format_duration(config.unhealthy_after)}`: never)" in PAGE


PAGES = [*ROOT.glob("*.md"), *ROOT.glob("docs/**/*.md"), *ROOT.glob("*/README.md"), *ROOT.glob("*/*/*/README.md")]
LINK = re.compile(r"\]\((?!https?://)([^)#\s]*)(?:#([^)\s]*))?\)")
FENCE = re.compile(r"^(```|~~~).*?^\1", re.MULTILINE | re.DOTALL)


def anchors(page: Path) -> set[str]:
    """The anchors of a page's headings, as GitHub and the site make them."""
    found: set[str] = set()
    for heading in re.findall(r"^#+ +(.*?)\s*$", FENCE.sub("", page.read_text("utf-8")), re.MULTILINE):
        text = re.sub(r"\[(.*?)\]\(.*?\)", r"\1", heading).lower()
        found.add(re.sub(r"[^\w\- ]", "", text).replace(" ", "-"))
    return found


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_every_link_leads_to_a_file_and_every_anchor_to_a_heading(page: Path) -> None:
    links = LINK.findall(FENCE.sub("", page.read_text("utf-8")))
    assert [link for link, _ in links if not (page.parent / link).exists()] == []
    targets = [((page.parent / link) if link else page, anchor) for link, anchor in links if anchor]
    in_pages = [(path, anchor) for path, anchor in targets if path.suffix == ".md"]
    assert [f"{path}#{anchor}" for path, anchor in in_pages if anchor not in anchors(path)] == []
