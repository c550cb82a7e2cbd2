"""What a whole collector with the eBPF receiver costs: its memory, and the time of training jobs that it watches.

Needs root, Linux 6.13 and PyTorch. Two jobs train, one with short and one with long steps, with and without the
collector in turns. What a step's scopes cost shows in the short steps; the long ones show what it comes to.
Nothing else on the machine may probe PyTorch meanwhile: a job is slowed by every collector that watches it.
"""

import importlib.util
import statistics
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path

import psutil

from benchmarks import Row
from otel_zernel_receivers.ebpf.loading import load
from otel_zernel_receivers.ebpf.tables import Limits
from otel_zernel_receivers.ebpf.unavailable import Unavailable

PAIRS = 9
SHORT, LONG = (16, 1000), (1024, 80)
"""Width of the model and steps in a turn: about 0.3 ms and 12 ms a step."""
PROBED_FILES = 2
"""Those of PyTorch on the CPU: libtorch_cpu and libtorch_python."""
MEMORY_BAR, SLOWDOWN_BAR = 90, 0.01

CONFIG = """
receivers: {ebpf: {}}
processors: {percentiles: {}}
exporters: {prometheus: {endpoint: "localhost:0"}}
service:
  pipelines: {metrics: {receivers: [ebpf], processors: [percentiles], exporters: [prometheus]}}
  telemetry: {metrics: {readers: [{pull: {exporter: {prometheus: {host: localhost, port: 0}}}}]}}
"""

# Trains for each line that comes in, and says how many seconds the median step took: other programs on the machine
# disturb few of the short steps.
_JOB = """
import statistics, sys, time, torch
from torch import nn
width, steps = map(int, sys.argv[1:])
torch.set_num_threads(1)
data = torch.utils.data.TensorDataset(torch.randn(32 * steps, width), torch.randint(0, 10, (32 * steps,)))
layers = [nn.Linear(width, width), nn.ReLU(), nn.Linear(width, width), nn.ReLU(), nn.Linear(width, 10)]
model = nn.Sequential(*layers)
optimizer = torch.optim.AdamW(model.parameters())
for _ in sys.stdin:
    ends = [time.perf_counter()]
    for inputs, labels in torch.utils.data.DataLoader(data, batch_size=32):
        nn.functional.cross_entropy(model(inputs), labels).backward()
        optimizer.step()
        optimizer.zero_grad()
        ends.append(time.perf_counter())
    print(statistics.median(end - begin for begin, end in zip(ends, ends[1:])), flush=True)
"""

Job = subprocess.Popen[str]
Pair = tuple[float, float]
"""Seconds a step: alone, and watched."""


def run() -> list[Row]:
    """All of it, in a minute."""
    if reason := _why_not():
        return [Row("eBPF: a whole collector beside a training", f"skipped: {reason}")]
    short: list[Pair] = []
    long: list[Pair] = []
    memory: list[float] = []
    with _job(*SHORT) as short_job, _job(*LONG) as long_job:
        for _ in range(PAIRS):
            alone = _train(short_job), _train(long_job)
            with _collector() as collector:
                long.append((alone[1], _train(long_job)))
                memory.append(collector.memory_info().rss / 1e6)  # before the short job's 7,000 spans a second
                short.append((alone[0], _train(short_job)))
    return [_memory(memory), _added(short), _slowdown(long)]


def _why_not() -> str | None:
    if not importlib.util.find_spec("torch"):
        return "PyTorch is not installed"
    try:
        load(Limits(max_processes=8, max_series=8)).close()
    except (Unavailable, OSError) as missing:
        return str(missing)
    return None


def _memory(memory: Sequence[float]) -> Row:
    most = max(memory)
    return Row("eBPF, percentiles, Prometheus: RSS", f"{most:.0f} MB", f"<= {MEMORY_BAR} MB", most <= MEMORY_BAR)


def _added(pairs: Sequence[Pair]) -> Row:
    """The median over the pairs, and their middle half."""
    low, median, high = statistics.quantiles([(watched - alone) * 1e6 for alone, watched in pairs], n=4)
    return Row("eBPF: added to a short step's scopes", f"{median:.0f} us ({low:.0f} to {high:.0f})")


def _slowdown(pairs: Sequence[Pair]) -> Row:
    """The same; undecided where the middle half lies on both sides of the bar."""
    low, median, high = statistics.quantiles([watched / alone - 1 for alone, watched in pairs], n=4)
    step_ms = statistics.median(alone for alone, _ in pairs) * 1e3
    value = f"{median:.1%} ({low:.1%} to {high:.1%}) of {step_ms:.0f} ms"
    ok = None if low <= SLOWDOWN_BAR < high else high <= SLOWDOWN_BAR
    return Row("eBPF: slowdown of a long step", value, f"<= {SLOWDOWN_BAR:.0%}", ok)


@contextmanager
def _job(width: int, steps: int) -> Iterator[Job]:
    """A job that has warmed up."""
    command = [sys.executable, "-c", _JOB, str(width), str(steps)]
    with (
        subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, bufsize=1) as job,
        ExitStack() as stack,
    ):
        stack.callback(job.kill)
        _train(job)
        yield job


def _train(job: Job) -> float:
    """Seconds of the median step of one turn."""
    assert job.stdin
    assert job.stdout
    job.stdin.write("\n")
    return float(job.stdout.readline())


@contextmanager
def _collector() -> Iterator[psutil.Process]:
    """A collector that has attached to the jobs."""
    with tempfile.TemporaryDirectory() as folder:
        config = Path(folder) / "config.yaml"
        config.write_text(CONFIG)
        command = [sys.executable, "-m", "otel_zernel", "run", "--config", str(config)]
        with subprocess.Popen(command, stderr=subprocess.PIPE, text=True) as collector, ExitStack() as stack:
            stack.callback(collector.communicate)
            stack.callback(collector.terminate)
            _await_attached(collector)
            yield psutil.Process(collector.pid)


def _await_attached(collector: Job) -> None:
    assert collector.stderr
    attached = 0
    while attached < PROBED_FILES:
        line = collector.stderr.readline()
        if not line:
            raise RuntimeError("the collector ended before it had attached")
        attached += "Probing" in line
