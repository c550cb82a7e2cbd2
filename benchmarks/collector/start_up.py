"""The CPU time until the collector is ready, with the bytecode of all modules on the disk."""

import os
import re
import subprocess
import sys
import tempfile
from pathlib import Path

from benchmarks import BenchmarkRow

EXAMPLES = Path(__file__).parents[2] / "examples"
REPETITIONS = 7
READY_BAR = 0.3
"""Seconds of CPU."""
LOCAL = [
    "--set=exporters.prometheus.endpoint=localhost:0",
    "--set=extensions.health_check.endpoint=localhost:0",
    "--set=service.telemetry.metrics.readers=[{pull: {exporter: {prometheus: {host: localhost, port: 0}}}}]",
]
PROGRAM = """
import logging, os, sys, time
class StopWhenReady(logging.Handler):
    def emit(self, record):
        if "ready" in record.getMessage().lower():
            sys.stdout.write(f"CPU {time.process_time()}")
            sys.stdout.flush()
            os._exit(0)
logging.getLogger("otel_zernel").addHandler(StopWhenReady())
from otel_zernel.__main__ import main
main()
"""
BARE = "import grpc, pydantic, sys, time; sys.stdout.write(f'CPU {time.process_time()}')"
COMMAND = "import atexit, sys, time; atexit.register(lambda: print('CPU', time.process_time()));"
COMMAND += "from otel_zernel.__main__ import main; main()"


def run() -> list[BenchmarkRow]:
    """The shortest CPU time of several starts. Other programs on the machine lengthen some of them."""
    with tempfile.TemporaryDirectory() as cache:
        measured = Measurement(cache)
        bare = measured.cpu(BARE)
        rows = [BenchmarkRow("python -c 'import grpc, pydantic'", f"{bare:.3f} s of CPU")]
        for name in ("percentiles", "sidecar"):
            seconds = measured.cpu(PROGRAM, "run", "--config", str(EXAMPLES / f"{name}.yaml"), *LOCAL)
            value = f"{seconds:.3f} s of CPU, {seconds / bare:.1f}x"
            rows.append(BenchmarkRow(f"{name}.yaml until ready", value, f"{READY_BAR} s", seconds <= READY_BAR))
        percentiles = ["--config", str(EXAMPLES / "percentiles.yaml")]
        for name, arguments in (("--version", []), ("validate", percentiles), ("components", [])):
            seconds = measured.cpu(COMMAND, name, *arguments)
            rows.append(BenchmarkRow(f"otel-zernel {name}", f"{seconds:.3f} s of CPU, {seconds / bare:.1f}x"))
        return rows


class Measurement:
    """Measures programs that print the CPU time of their process."""

    def __init__(self, cache: str) -> None:
        """`cache` is the folder of the bytecode."""
        self._environ = {name: value for name, value in os.environ.items() if name != "PYTHONDONTWRITEBYTECODE"}
        self._environ["PYTHONPYCACHEPREFIX"] = cache

    def cpu(self, program: str, *arguments: str) -> float:
        """Seconds. The first start compiles the modules and does not count."""
        return min([self._once(program, *arguments) for _ in range(1 + REPETITIONS)][1:])

    def _once(self, program: str, *arguments: str) -> float:
        command = [sys.executable, "-c", program, *arguments]
        root = EXAMPLES.parent
        done = subprocess.run(command, cwd=root, env=self._environ, capture_output=True, text=True, check=False)
        match = re.search(r"CPU ([\d.]+)", done.stdout)
        if not match:
            raise RuntimeError(f"{' '.join(command)} has not started: {done.stderr}")
        return float(match[1])
