"""The cost of a sidecar with little data: `examples/sidecar.yaml` with 80 rows per second."""

import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from itertools import islice
from pathlib import Path

import psutil

from benchmarks import BenchmarkRow, cpu_of

EXAMPLES = Path(__file__).parents[2] / "examples"
ROWS_A_SECOND = 80
WARM_UP, MEASURED = 5, 20
"""Seconds."""
LOCAL = [
    "--set=exporters.prometheus.endpoint=localhost:0",
    "--set=extensions.health_check.endpoint=localhost:0",
    "--set=service.telemetry.metrics.readers=[{pull: {exporter: {prometheus: {host: localhost, port: 0}}}}]",
]


def run() -> list[BenchmarkRow]:
    """Resident memory after a warm-up, and the share of one CPU over 20 seconds."""
    with tempfile.TemporaryDirectory() as folder, (EXAMPLES / "training_node.csv").open() as recording:
        path = Path(folder) / "node.csv"
        path.write_text(recording.readline())
        command = [sys.executable, "-m", "otel_zernel", "run", "--config", str(EXAMPLES / "sidecar.yaml"), *LOCAL]
        environ = {**os.environ, "TELEMETRY_CSV": str(path)}
        with subprocess.Popen(command, env=environ, stderr=subprocess.DEVNULL) as collector:
            process = psutil.Process(collector.pid)
            _append(recording, path, WARM_UP)
            before = cpu_of(process)
            _append(recording, path, MEASURED)
            share = (cpu_of(process) - before) / MEASURED
            memory = process.memory_info().rss / 2**20
            collector.terminate()
    return [
        BenchmarkRow("idle sidecar: resident memory", f"{memory:.0f} MiB"),
        BenchmarkRow(f"idle sidecar: CPU at {ROWS_A_SECOND} rows a second", f"{share:.1%} of a CPU"),
    ]


def _append(recording: Iterator[str], path: Path, seconds: int) -> None:
    for _ in range(seconds):
        with path.open("a") as growing:
            growing.writelines(islice(recording, ROWS_A_SECOND))
        time.sleep(1)
