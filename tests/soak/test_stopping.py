"""A collector that is stopped at any moment delivers every accepted point, or logs how many it did not deliver."""

import json
import random
import re
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

pytestmark = pytest.mark.soak

ROWS = 20_000
HEADER = "timestamp,gpu_id,hostname,gpu_utilization\n"


@pytest.mark.timeout(1800)
def test_after_a_hundred_stops_no_accepted_point_is_missing(tmp_path: Path) -> None:
    rows = (f"2026-01-01T00:00:00.{row:06d}Z,{row % 8},node,{row % 101}\n" for row in range(ROWS))
    (tmp_path / "in.csv").write_text(HEADER + "".join(rows))
    moments = random.Random(2026)
    counts = [_stop_after(moments.uniform(0.3, 1.5), tmp_path / f"{run}.jsonl", tmp_path) for run in range(100)]
    assert {count for count in counts if count}, "every run was stopped before its first point"
    print(f"\n100 runs stopped by SIGTERM after 0.3 to 1.5 s: {sum(counts)} points accepted, all delivered")


def _stop_after(seconds: float, out: Path, folder: Path) -> int:
    """Runs a collector for this time. Returns the number of accepted points; the file must have them all."""
    config = f"""yaml:
receivers: {{csv: {{files: [{folder}/in.csv], layout: wide, batch_size: 100, loop: true, interval: 1ms}}}}
exporters: {{file: {{path: {out}}}}}
service:
  telemetry: {{metrics: {{level: none}}}}
  pipelines: {{p: {{receivers: [csv], exporters: [file]}}}}
"""
    command = [sys.executable, "-m", "otel_zernel", "run", "--config", config]
    with subprocess.Popen(command, stderr=subprocess.PIPE, text=True) as collector:
        time.sleep(seconds)
        collector.send_signal(signal.SIGTERM)
        _, log = collector.communicate(timeout=60)
    if "Everything is ready" not in log:  # stopped during its start
        return 0
    assert collector.returncode == 0, log
    totals = re.findall(r"accepted ([\d,]+) metric points", log)  # none if it was stopped before its first row
    accepted = int(totals[-1].replace(",", "")) if totals else 0
    assert _points(out) == accepted
    return accepted


def _points(path: Path) -> int:
    """The number of data points in a file of OTLP JSON."""
    lines = path.read_text().splitlines() if path.exists() else []
    return sum(
        len(metric["gauge"]["dataPoints"])
        for line in lines
        for resource in json.loads(line)["resourceMetrics"]
        for scope in resource["scopeMetrics"]
        for metric in scope["metrics"]
    )
