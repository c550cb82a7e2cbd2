"""Whether the probes of a running collector stay within `max_overhead`, by the CPU time of the jobs.

Needs root, Linux 6.6 and PyTorch, and takes a quarter of an hour. A collector with its defaults watches jobs, then
stops, then starts again. In between and beside it, each job trains a block of steps on its own CPU. The added share is
the mean CPU time that a step takes more in a watched block, of the block's time. It is the mean of the middle half of
the pairs, with its 95 % interval from bootstrap samples. The control compares each block without a collector with the
next one.

The steps of a watched block count after the collector has watched the job for a second: that long a limit may take to
act. `scopes` are never sampled: a job whose scopes alone take more is measured too, and reported by
`zernel.probe.excess`.
"""

import statistics
import time
from contextlib import ExitStack
from dataclasses import dataclass, field
from itertools import pairwise

from benchmarks import BenchmarkRow
from benchmarks.ebpf.ebpf_torch import Estimate, estimate
from benchmarks.ebpf.probe_cost import Model, first_in_line
from benchmarks.training.watched_training import Training, collector, training, why_not
from otel_zernel_receivers.ebpf.config import EbpfConfig

PAIRS = 50
ACTS_AFTER = 1.0
"""Seconds until a limit acts."""
BLOCK_S = 1.2
"""Seconds of a block that count."""
LIMIT = EbpfConfig.model_fields["max_overhead"].default


MODELS = {
    "step of 0.8 ms, scopes above the limit": Model(16, 32, 300, 2),
    "step of 3 ms": Model(256, 128, 100, 2),
    "step of 37 ms with 77 hits": Model(176, 64, 10, 64),
    "step of 5 ms with 77 hits": Model(8, 8, 60, 64),
}
UNLIMITED = {"step of 0.8 ms, scopes above the limit"}
"""The jobs whose probes that are never sampled take more than the limit."""


@dataclass(slots=True)
class Measured:
    """The mean CPU seconds of a step in each block of one job, and its wall-clock seconds."""

    alone: list[float] = field(default_factory=list)
    watched: list[float] = field(default_factory=list)
    wall: list[float] = field(default_factory=list)

    def added(self) -> Estimate:
        """The share of a CPU that the collector adds, beside the blocks before and after."""
        without = [(before + after) / 2 for before, after in pairwise(self.alone)]
        return estimate([(cpu - base) / wall for cpu, base, wall in zip(self.watched, without, self.wall, strict=True)])

    def noise(self) -> Estimate:
        """The same of neighbouring blocks without a collector."""
        wall = statistics.fmean(self.wall)
        return estimate([(after - before) / wall for before, after in pairwise(self.alone)])


def run() -> list[BenchmarkRow]:
    """Two rows a job."""
    if reason := why_not():
        return [BenchmarkRow("eBPF: limit of the probes", f"skipped: {reason}")]
    measured = {name: Measured() for name in MODELS}
    with first_in_line(), ExitStack() as stack:
        jobs = {
            name: stack.enter_context(training(model.width, model.batch, model.steps, model.layers))
            for name, model in MODELS.items()
        }
        for pair in range(PAIRS + 1):
            for name, job in jobs.items():
                cpu, _ = _train(job, BLOCK_S)
                measured[name].alone.append(cpu)
            if pair == PAIRS:
                break
            with collector():
                for name, job in jobs.items():
                    _train(job, ACTS_AFTER)
                    cpu, wall = _train(job, BLOCK_S)
                    measured[name].watched.append(cpu)
                    measured[name].wall.append(wall)
    return [row for name in MODELS for row in _rows(name, measured[name])]


def _train(job: Training, seconds: float) -> tuple[float, float]:
    """The means of a step's CPU and wall-clock time in seconds."""
    cpu, wall, end = list[float](), list[float](), time.monotonic() + seconds
    while time.monotonic() < end:
        steps = job.train()
        cpu += steps.cpu[2:]
        wall += steps.wall[2:]
    return statistics.fmean(cpu), statistics.fmean(wall)


def _rows(name: str, measured: Measured) -> list[BenchmarkRow]:
    added, noise = measured.added(), measured.noise()
    value = f"{added.middle:+.2%} ({added.low:+.2%} to {added.high:+.2%}) in {PAIRS} pairs"
    control = BenchmarkRow("  control", f"{noise.middle:+.2%} ({noise.low:+.2%} to {noise.high:+.2%})")
    if name in UNLIMITED:
        return [BenchmarkRow(f"eBPF: CPU of probes, {name}", value), control]
    is_decided = added.high <= LIMIT or added.low > LIMIT
    ok = added.high <= LIMIT if is_decided else None
    return [BenchmarkRow(f"eBPF: CPU of probes, {name}", value, f"<= {LIMIT:.1%} of a CPU", ok), control]
