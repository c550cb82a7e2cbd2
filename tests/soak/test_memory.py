"""The memory of a working collector does not grow."""

import os
import time
from pathlib import Path

import pytest

from tests.collectors import running_collector

pytestmark = pytest.mark.soak

MINUTES = float(os.environ.get("SOAK_MINUTES", "10"))


@pytest.mark.timeout(86_400)
def test_resident_memory_does_not_grow_after_the_first_minute(tmp_path: Path) -> None:
    """A thousand short-lived series at full speed, into percentiles and a Prometheus page."""
    rows = (f"2026-01-01T00:00:00Z,{row % 8},node-{row % 997},{row % 101}\n" for row in range(100_000))
    (tmp_path / "in.csv").write_text("timestamp,gpu_id,hostname,gpu_utilization\n" + "".join(rows))
    config = f"""
receivers: {{csv: {{files: [{tmp_path}/in.csv], layout: wide, loop: true, timestamps: now}}}}
processors: {{percentiles: {{interval: 1s, window: 10s}}}}
exporters:
  prometheus: {{endpoint: "localhost:0", metric_expiration: 30s}}
  file: {{path: {tmp_path}/out.jsonl, rotation: {{max_megabytes: 10, max_backups: 1}}}}
service:
  telemetry: {{metrics: {{level: none}}}}
  pipelines: {{p: {{receivers: [csv], processors: [percentiles], exporters: [prometheus, file]}}}}
"""
    with running_collector(tmp_path, config) as running:
        process = running.process
        samples = []
        ends = time.monotonic() + MINUTES * 60
        while time.monotonic() < ends:
            time.sleep(5)
            assert process.poll() is None
            samples.append(process.memory_info().rss / 2**20)
        process.terminate()
        assert process.wait(30) == 0
    settled = samples[len(samples) // 5 :]
    print(f"\n{MINUTES:g} min at full speed: {settled[0]:.0f} MiB after a fifth of it, {max(settled):.0f} MiB at most")
    assert max(settled) < settled[0] * 1.15
