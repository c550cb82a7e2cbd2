"""A training job and a collector that watches it. Each has its own CPU if there are two."""

import importlib.util
import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path

import psutil

from otel_zernel_receivers.ebpf.kernel.unavailable import Unavailable
from otel_zernel_receivers.ebpf.probes.loading import load
from otel_zernel_receivers.ebpf.tables.tables import Limits

PROBED_FILES = 3
"""PyTorch without CUDA: libtorch_cpu, libtorch_python and libc10."""
JOB_CPU, COLLECTOR_CPU = 0, (os.cpu_count() or 1) - 1

CONFIG = """
receivers: {ebpf: %s}
processors: {percentiles: {}}
exporters: {prometheus: {endpoint: "localhost:0"}}
service:
  pipelines: {metrics: {receivers: [ebpf], processors: [percentiles], exporters: [prometheus]}}
  telemetry: {metrics: {readers: [{pull: {exporter: {prometheus: {host: localhost, port: 0}}}}]}}
"""

# Trains one block for each input line. Prints the duration of each step: wall-clock time and CPU time of the thread.
_JOB = """
import json, os, sys, time, torch
from torch import nn
cpu, width, batch, steps, layers = map(int, sys.argv[1:])
os.sched_setaffinity(0, {cpu})
torch.set_num_threads(1)
data = torch.utils.data.TensorDataset(torch.randn(batch * steps, width), torch.randint(0, 10, (batch * steps,)))
hidden = [layer for _ in range(layers) for layer in (nn.Linear(width, width), nn.ReLU())]
model = nn.Sequential(*hidden, nn.Linear(width, 10))
optimizer = torch.optim.AdamW(model.parameters())
for _ in sys.stdin:
    wall, cpu = [time.perf_counter()], [time.thread_time()]
    for inputs, labels in torch.utils.data.DataLoader(data, batch_size=batch):
        nn.functional.cross_entropy(model(inputs), labels).backward()
        optimizer.step()
        optimizer.zero_grad()
        wall.append(time.perf_counter())
        cpu.append(time.thread_time())
    print(json.dumps([[end - begin for begin, end in zip(ends, ends[1:])] for ends in (wall, cpu)]), flush=True)
"""


@dataclass(frozen=True, slots=True)
class Steps:
    """The durations of the steps of one block, in seconds."""

    wall: list[float]
    cpu: list[float]
    """CPU time of the training thread: includes the probes, excludes other programs."""


@dataclass(frozen=True, slots=True)
class Training:
    """A job that trains one block on request."""

    process: "subprocess.Popen[str]"

    def train(self) -> Steps:
        """Trains one block of steps."""
        assert self.process.stdin
        assert self.process.stdout
        self.process.stdin.write("\n")
        return Steps(*json.loads(self.process.stdout.readline()))


@contextmanager
def training(width: int, batch: int, steps: int, layers: int = 2) -> Iterator[Training]:
    """A warmed-up job with a model of this width and so many hidden layers, and `steps` in a block."""
    command = [sys.executable, "-c", _JOB, *map(str, (JOB_CPU, width, batch, steps, layers))]
    with (
        subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, bufsize=1) as process,
        ExitStack() as stack,
    ):
        stack.callback(process.kill)
        job = Training(process)
        job.train()
        yield job


@contextmanager
def collector(files: int = PROBED_FILES, ebpf: str = "{}") -> Iterator[psutil.Process]:
    """A collector that has attached its probes to the `files` of the jobs. It is stopped at the end.

    `ebpf` is the configuration of the receiver.
    """
    with tempfile.TemporaryDirectory() as folder:
        config = Path(folder) / "config.yaml"
        config.write_text(CONFIG % ebpf)
        command = [sys.executable, "-m", "otel_zernel", "run", "--config", str(config)]
        with subprocess.Popen(command, stderr=subprocess.PIPE, text=True) as process, ExitStack() as stack:
            stack.callback(process.communicate)
            stack.callback(process.terminate)
            running = psutil.Process(process.pid)
            running.cpu_affinity([COLLECTOR_CPU])
            _await_attached(process, files)
            yield running


def _await_attached(process: "subprocess.Popen[str]", files: int) -> None:
    assert process.stderr
    attached = 0
    while attached < files:
        line = process.stderr.readline()
        if not line:
            raise RuntimeError("the collector ended before it attached its probes")
        attached += "Probing" in line


def why_not() -> str | None:
    """Why a collector cannot watch a training here; None if it can."""
    if not importlib.util.find_spec("torch"):
        return "PyTorch is not installed"
    try:
        load(Limits(max_processes=8, max_series=8)).close()
    except (Unavailable, OSError) as missing:
        return str(missing)
    return None
