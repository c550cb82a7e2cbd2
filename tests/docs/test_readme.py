"""The README is executed: its configuration validates, its receiver runs, its catalogue is complete."""

import json
import os
import re
import subprocess
import sys
from pathlib import Path

from docs.catalogue import ROOT, written_into
from otel_zernel.config.schema import read_settings
from otel_zernel.registry import Registry

README = (ROOT / "README.md").read_text("utf-8")
CONTRIBUTING = (ROOT / "docs/development/contributing.md").read_text("utf-8")


def block(marker: str, page: str) -> str:
    """The fenced block after a marker."""
    match = re.search(rf"<!-- {re.escape(marker)} -->\n```\w*\n(.*?)```", page, re.DOTALL)
    assert match
    return match[1]


def test_its_catalogue_lists_the_installed_components() -> None:
    assert written_into(README, Registry.installed()) == README, "run `make docs`"


def test_its_configuration_is_valid() -> None:
    settings = read_settings([f"yaml:{block('config: copy', README)}"], [], {}, Registry.installed())
    assert set(settings.pipelines) == {"raw", "percentiles"}


def test_its_receiver_is_at_most_30_lines_of_class_and_works_once_installed(tmp_path: Path) -> None:
    source = block("example: load_receiver.py", CONTRIBUTING)
    assert sum(bool(line.strip()) for line in source.splitlines()) <= 30
    (tmp_path / "load_receiver.py").write_text(source)
    installed = tmp_path / "load_receiver-1.0.dist-info"
    installed.mkdir()
    (installed / "METADATA").write_text("Metadata-Version: 2.1\nName: load-receiver\nVersion: 1.0\n")
    entry = block("example: entry point", CONTRIBUTING).replace(
        '[project.entry-points."otel_zernel.receivers"]', "[otel_zernel.receivers]"
    )
    (installed / "entry_points.txt").write_text(entry.replace('"', ""))

    points = tmp_path / "points.jsonl"
    config = f"""
receivers: {{load: {{collection_interval: 100ms, initial_delay: 0s}}}}
exporters: {{file: {{path: {points}, flush_interval: 10ms}}}}
service: {{telemetry: {{metrics: {{level: none}}}}, pipelines: {{p: {{receivers: [load], exporters: [file]}}}}}}
"""
    command = [sys.executable, "-m", "otel_zernel", "run", "--config", f"yaml:{config}"]
    environ = {**os.environ, "PYTHONPATH": str(tmp_path)}
    with subprocess.Popen(command, env=environ, stderr=subprocess.PIPE, text=True) as collector:
        try:
            while not (points.exists() and points.read_text().count("\n") >= 2):
                assert collector.poll() is None, collector.stderr and collector.stderr.read()
        finally:
            collector.terminate()
            collector.communicate(timeout=60)
    scrape = json.loads(points.read_text().splitlines()[0])
    metric = scrape["resourceMetrics"][0]["scopeMetrics"][0]["metrics"][0]
    assert metric["name"] == "system.load_average"
    assert len(metric["gauge"]["dataPoints"]) == 3
