"""Runs a collector beside a job: ebpf receiver, phases processor, file exporter."""

import json
import re
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from opentelemetry.proto.metrics.v1.metrics_pb2 import MetricsData
from opentelemetry.proto.trace.v1.trace_pb2 import TracesData

from otel_zernel.batch import Batch
from otel_zernel.otlp.json import parse_json
from otel_zernel_receivers.ebpf.probes.libraries import PROBES
from otel_zernel_receivers.ebpf.processes.scanner import Scanner, Selection
from tests.collectors import ROOT as ROOT
from tests.collectors import Collector, running_collector

JOB = "ZERNEL_GPU_CHECK"
"""The environment variable that selects the job."""
PATIENCE_S = 30
"""Seconds that attaching may take."""
_ATTACHED = re.compile("Probing [0-9]+ functions of|Cannot probe |Nothing to probe in ")

# max_overhead: 0 disables sampling, so that every call is counted.
_CONFIG = """
receivers: {{ebpf: {{interval: 250ms, max_overhead: 0, processes: {{environment: {{{job}: "{name}"}}}}}}}}
processors: {{phases: {{interval: 1s, pass_through: true, traces: null}}}}
exporters: {{file: {{path: {output}}}}}
service:
  pipelines: {{check: {{receivers: [ebpf], processors: [phases], exporters: [file]}}}}
  telemetry: {{metrics: {{level: none}}, logs: {{level: debug}}}}
"""


@contextmanager
def collector(folder: Path, name: str) -> Iterator[Path]:
    """A collector that has attached to the processes whose variable `JOB` is `name`. They must outlive the collector.

    Yields the output file, which is complete afterwards. Raises RuntimeError with the log if the collector fails.
    """
    output = folder / "output.json"
    with running_collector(folder, _CONFIG.format(job=JOB, name=name, output=output)) as running:
        _await_attached(running, files=_files_of(name))
        yield output
    if running.process.returncode:
        raise RuntimeError(running.log)


def batches_of(output: Path) -> list[Batch]:
    """The batches in the collector's output file."""
    lines = output.read_text().splitlines()
    return [
        Batch(metrics=parse_json(MetricsData, line))
        if "resourceMetrics" in json.loads(line)
        else Batch(spans=parse_json(TracesData, line))
        for line in lines
    ]


def _files_of(name: str) -> int:
    """The number of library files to be probed in the processes."""
    scan = Scanner(selection=Selection(environment={JOB: name})).scan()
    return len({used.identity for process in scan.processes for used in process.files if used.library in PROBES})


def _await_attached(running: Collector, files: int) -> None:
    """Waits until the collector has logged, for each file, that it is probed or not. Returns after `PATIENCE_S` at the
    latest."""
    until = time.monotonic() + PATIENCE_S
    while len(_ATTACHED.findall(running.log)) < files and time.monotonic() < until:
        if running.process.poll() is not None:
            raise RuntimeError(f"the collector has ended unexpectedly:\n{running.log}")
        time.sleep(0.05)
