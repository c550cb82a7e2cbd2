"""A collector whose backend is dead stays below its limit."""

import signal
import subprocess
import sys
import time
from pathlib import Path

from tests.collectors import running_collector
from tests.waiting import wait_for

CONFIG = """
receivers:
  csv: {{files: [{data}], layout: wide, loop: true, interval: 0s, follow: false}}
processors:
  memory_limiter: {{check_interval: 100ms, limit_mib: {limit}, spike_limit_mib: {spike}}}
exporters:
  otlp: {{endpoint: "localhost:1", tls: {{insecure: true}}, sending_queue: {{queue_size: 1000000}}}}
service:
  telemetry: {{metrics: {{level: none}}}}
  pipelines:
    metrics: {{receivers: [csv], processors: [memory_limiter], exporters: [otlp]}}
"""
ROWS = "timestamp,gpu_id,hostname,gpu_utilization\n" + "2026-01-01T00:00:00Z,0,node,50\n" * 5000
SPIKE_MIB = 50
PATIENCE = 60.0


def memory_of_modules() -> int:
    """MiB that a collector needs before it has data."""
    code = "import otel_zernel.engine.process, otel_zernel_exporters.otlp, otel_zernel_receivers.csv, psutil; "
    code += "print(psutil.Process().memory_info().rss >> 20)"
    return int(subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout)


def test_a_dead_backend_does_not_fill_the_memory(tmp_path: Path) -> None:
    (tmp_path / "rows.csv").write_text(ROWS)
    limit = memory_of_modules() + 3 * SPIKE_MIB
    config = CONFIG.format(data=tmp_path / "rows.csv", limit=limit, spike=SPIKE_MIB)
    with running_collector(tmp_path, config, end=signal.SIGKILL) as running:
        wait_for(lambda: "Refusing data" in running.log, "the limiter refuses data")
        used = []
        for _ in range(15):
            used.append(running.process.memory_info().rss >> 20)
            time.sleep(0.1)
    assert max(used) < limit, used
