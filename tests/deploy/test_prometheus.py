"""The scrape example, the alerts and the recording rules: promtool accepts them, and each rule has a test."""

import re
import subprocess
from itertools import chain
from typing import Any

import pytest
import yaml

from docs import metrics as page
from docs.catalogue import ROOT
from otel_zernel_libraries.prometheus.names import Naming
from otel_zernel_libraries.prometheus.options import Options
from otel_zernel_receivers.nvml.readings.status import FATAL_XIDS
from tests.interop.installed import find_peer

FOLDER = ROOT / "deploy" / "prometheus"
RULES = [
    rule
    for name in ("alerts.yaml", "recording.yaml")
    for group in yaml.safe_load((FOLDER / name).read_text())["groups"]
    for rule in group["rules"]
]
ALERTS = [rule for rule in RULES if "alert" in rule]
TESTS = sorted(FOLDER.glob("*_test.yaml"))


def exposed_names() -> set[str]:
    """The names of all metrics in Prometheus: own metrics have no suffixes."""
    naming = Naming(Options())
    own, others = set(), set()
    for metric in chain.from_iterable(table.values() for _, table in page.tables()):
        if metric.own:
            own.add(metric.name.replace(".", "_"))
        else:
            kinds = {"is_gauge": metric.kind == "gauge", "is_counter": metric.kind == "sum"}
            others.add(naming.family(metric.name, metric.unit, **kinds))
    return own | others


@pytest.mark.parametrize(
    "arguments",
    [
        ("check", "config", "prometheus.yaml"),
        ("check", "rules", "alerts.yaml", "recording.yaml"),
        *(("test", "rules", path.name) for path in TESTS),
    ],
    ids=" ".join,
)
def test_promtool_accepts_the_files(arguments: tuple[str, ...]) -> None:
    done = subprocess.run([find_peer("promtool"), *arguments], cwd=FOLDER, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr


def cases() -> list[dict[str, Any]]:
    """The cases of alerts in all tests."""
    tests = chain.from_iterable(yaml.safe_load(path.read_text())["tests"] for path in TESTS)
    return [case for test in tests for case in test.get("alert_rule_test", ())]


@pytest.mark.parametrize("rule", ALERTS, ids=lambda rule: str(rule["alert"]))
def test_every_alert_is_tested_with_and_without_its_reason(rule: dict[str, Any]) -> None:
    fires = {bool(case["exp_alerts"]) for case in cases() if case["alertname"] == rule["alert"]}
    assert fires == {True, False}


def test_every_recording_rule_is_tested() -> None:
    tests = yaml.safe_load((FOLDER / "recording_test.yaml").read_text())["tests"]
    tested = {case["expr"] for test in tests for case in test["promql_expr_test"]}
    assert {rule["record"] for rule in RULES if "record" in rule} == tested


@pytest.mark.parametrize("rule", ALERTS, ids=lambda rule: str(rule["alert"]))
def test_every_alert_has_a_severity_a_time_and_a_section_that_says_what_to_do(rule: dict[str, Any]) -> None:
    assert rule["labels"]["severity"] in {"critical", "warning", "info"}
    assert rule["for"]
    assert {"summary", "description", "runbook_url"} == rule["annotations"].keys()
    path, _, anchor = rule["annotations"]["runbook_url"].partition("#")
    headings = re.findall(r"^### (\w+)$", (ROOT / path).read_text(), re.MULTILINE)
    assert rule["alert"] in headings
    assert anchor == rule["alert"].lower()


def test_the_page_of_alerts_has_no_others() -> None:
    headings = re.findall(r"^### (\w+)$", (ROOT / "docs" / "alerts.md").read_text(), re.MULTILINE)
    assert headings == [rule["alert"] for rule in ALERTS]


@pytest.mark.parametrize("rule", RULES, ids=lambda rule: str(rule.get("alert") or rule["record"]))
def test_every_rule_is_about_metrics_that_exist(rule: dict[str, Any]) -> None:
    named = set(re.findall(r"(?<![\w\"])(?:otelcol|zernel|hw)_\w+(?=[{\[)\s]|$)", rule["expr"])) - labels_of(
        rule["expr"]
    )
    assert named or rule["expr"].startswith("up{")
    assert {name.removesuffix("_bucket") for name in named} - exposed_names() == set()


def labels_of(expression: str) -> set[str]:
    """The labels in `by (...)`, `on (...)` and `group_left (...)`."""
    groups = re.findall(r"(?:by|on|ignoring|without|group_left) \(([^)]*)\)", expression)
    return {label.strip() for group in groups for label in group.split(",")}


def test_the_alerts_on_hardware_are_about_the_xids_that_are_fatal_to_nvml() -> None:
    (rule,) = (rule for rule in ALERTS if rule["alert"] == "GpuXidHardware")
    (codes,) = re.findall(r'zernel_gpu_xid_code=~"([\d|]+)"', rule["expr"])
    assert {int(code) for code in codes.split("|")} == FATAL_XIDS


def test_the_scrape_of_jobs_honors_their_labels() -> None:
    config = yaml.safe_load((FOLDER / "prometheus.yaml").read_text())
    honored = {job["job_name"]: job.get("honor_labels", False) for job in config["scrape_configs"]}
    assert honored == {"otel-zernel": True, "otel-zernel-own": False}
