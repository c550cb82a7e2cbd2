"""The scrape example and the alerts: promtool accepts them, and each alert fires for what it names."""

import re
import subprocess
from pathlib import Path

import pytest
import yaml

from docs import metrics as page
from tests.interop.conftest import find_peer

FOLDER = Path(__file__).parents[2] / "deploy" / "prometheus"
OWN = {name.replace(".", "_") for _, table in page.tables() for name, metric in table.items() if metric.own}
ALERTS = [rule for group in yaml.safe_load((FOLDER / "alerts.yaml").read_text())["groups"] for rule in group["rules"]]


@pytest.mark.parametrize(
    "arguments",
    [("check", "config", "prometheus.yaml"), ("check", "rules", "alerts.yaml"), ("test", "rules", "alerts_test.yaml")],
    ids=" ".join,
)
def test_promtool_accepts_the_files(arguments: tuple[str, ...]) -> None:
    done = subprocess.run([find_peer("promtool"), *arguments], cwd=FOLDER, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr


def test_every_alert_has_a_test() -> None:
    tested = {
        case["alertname"]
        for test in yaml.safe_load((FOLDER / "alerts_test.yaml").read_text())["tests"]
        for case in test["alert_rule_test"]
        if case["exp_alerts"]
    }
    assert {rule["alert"] for rule in ALERTS} == tested


@pytest.mark.parametrize("rule", ALERTS, ids=lambda rule: str(rule["alert"]))
def test_every_alert_is_about_a_metric_that_exists(rule: dict[str, str]) -> None:
    named = set(re.findall(r"(?:otelcol|zernel)_\w+", rule["expr"]))
    assert [name for name in named if name not in OWN and not any(one.startswith(name) for one in OWN)] == []


def test_the_scrape_of_jobs_honors_their_labels() -> None:
    config = yaml.safe_load((FOLDER / "prometheus.yaml").read_text())
    honored = {job["job_name"]: job.get("honor_labels", False) for job in config["scrape_configs"]}
    assert honored == {"otel-zernel": True, "otel-zernel-own": False}
