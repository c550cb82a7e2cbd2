"""The time that a job loses around each sample of its stacks.

The job trains steps of about 30 ms and notes the time after each layer, forward and backward: about forty parts of
0.3 to 1.5 ms a step. The expected time of a part is the median of the same part in the steps around it, so slow
changes of the machine cancel out. The sampler's clock has a fixed period, so all its interrupts are known once one is:
they came at the moment, within the period, at which parts take longest. One half of the samples shows it, and the
other half is measured, and the other way round: the time that the part with the sample and the parts after it take
more than expected, less the same half a period earlier and later, when there was no sample. So caches that a sample has
displaced count, too.
"""

import json
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from benchmarks.ebpf.ebpf_torch import Estimate, estimate
from benchmarks.training.watched_training import JOB_CPU

Numbers = NDArray[np.float64]

LAYERS, WIDTH, BATCH = 16, 256, 192
BLOCK = 200
"""Steps that the job takes at a request: about 6 s."""
AROUND = 4
"""Steps before and after one that show what its parts should take."""
FOLLOWING = 5
"""Parts from the one with the sample on that may lose time through it."""
PHASES = 500
"""Moments within a period that are tried."""
GROUP = 4
"""Samples whose mean is one value: the middle half of single samples would leave out the slow ones."""
CLEAR = 8
"""A moment stands out by so many times the usual deviation."""

# Trains so many steps for each input line. Prints for each step the times (ns) after each of its parts.
_JOB = """
import json, os, sys, time, torch
from torch import nn
cpu, layers, width, batch = map(int, sys.argv[1:])
os.sched_setaffinity(0, {cpu})
torch.set_num_threads(1)
inputs, labels = torch.randn(batch, width), torch.randint(0, 10, (batch,))
hidden = [nn.Sequential(nn.Linear(width, width), nn.ReLU()) for _ in range(layers)]
head = nn.Linear(width, 10)
optimizer = torch.optim.AdamW([each for layer in (*hidden, head) for each in layer.parameters()])
now = time.perf_counter_ns
for line in sys.stdin:
    steps = []
    for _ in range(int(line)):
        times = [now()]
        mark = lambda gradient: times.append(now())
        outputs = inputs
        for layer in hidden:
            outputs = layer(outputs)
            outputs.register_hook(mark)
            times.append(now())
        nn.functional.cross_entropy(head(outputs), labels).backward()
        times.append(now())
        optimizer.step()
        times.append(now())
        optimizer.zero_grad()
        times.append(now())
        steps.append(times)
    print(json.dumps(steps), flush=True)
"""


@dataclass(frozen=True, slots=True)
class PartJob:
    """A job that trains on request."""

    process: "subprocess.Popen[str]"

    def train(self, steps: int = BLOCK) -> list[list[int]]:
        """Trains so many steps. Returns the times (ns) after each part of each."""
        assert self.process.stdin
        assert self.process.stdout
        print(steps, file=self.process.stdin, flush=True)
        times: list[list[int]] = json.loads(self.process.stdout.readline())
        return times


@contextmanager
def part_job() -> Iterator[PartJob]:
    """A warmed-up job."""
    command = [sys.executable, "-c", _JOB, *map(str, (JOB_CPU, LAYERS, WIDTH, BATCH))]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
        try:
            job = PartJob(process)
            job.train(20)
            yield job
        finally:
            process.kill()


def cost_of_samples(times: list[list[int]], period_ns: int) -> Estimate | None:
    """The time (us) that the job loses around a sample; None if no moment of the period stands out."""
    samples = _Samples(*_excess(np.array(times)), period_ns)
    phases = [samples.phase(half) for half in (1, 0)]
    lost = [samples.added(half, phase) for half, phase in enumerate(phases) if phase is not None]
    if len(lost) < len(phases):
        return None
    groups = np.array_split(np.concatenate(lost), max(sum(map(len, lost)) // GROUP, 1))
    return estimate([float(group.mean()) for group in groups])


def _excess(times: NDArray[np.int64]) -> tuple[NDArray[np.int64], Numbers]:
    """The begin of each part (ns), and how much longer (us) than the same part of the steps around it took."""
    taken = np.diff(times, axis=1) / 1e3
    windows: Any = np.lib.stride_tricks.sliding_window_view(taken, 2 * AROUND + 1, axis=0)
    inner = slice(AROUND, len(taken) - AROUND)
    return times[inner, :-1].ravel(), (taken[inner] - np.median(windows, axis=2)).ravel()


class _Samples:
    """The parts of a job, in the order of time, and the samples of a clock with this period."""

    def __init__(self, begins: NDArray[np.int64], excess: Numbers, period_ns: int) -> None:
        self._begins, self._excess, self._period = begins, excess, period_ns
        self._count = int((begins[-1] - begins[0]) // period_ns) - 3

    def phase(self, half: int) -> float | None:
        """When the samples of a half came (ns in the period); None if no moment stands out."""
        phases = np.linspace(0, self._period, PHASES, endpoint=False)
        lost = np.array([_middle(self._lost(half, phase, parts=1)) for phase in phases])
        usual = float(np.median(lost))
        deviation = float(np.median(np.abs(lost - usual)))
        return float(phases[lost.argmax()]) if lost.max() - usual > CLEAR * deviation else None

    def added(self, half: int, phase: float) -> Numbers:
        """The time (us) that each sample of a half costs."""
        between = self._period / 2
        without = (self._lost(half, phase - between) + self._lost(half, phase + between)) / 2
        return self._lost(half, phase) - without

    def _lost(self, half: int, phase: float, parts: int = FOLLOWING) -> Numbers:
        """The time (us) that the parts from each moment of a half on take more than expected, in the order of time."""
        count = self._count // 2
        numbers = 1 + np.arange(half * count, (half + 1) * count)
        at = np.searchsorted(self._begins, self._begins[0] + phase + numbers * self._period, side="right") - 1
        total: Numbers = self._excess[at[:, None] + np.arange(parts)].sum(axis=1)
        return total


def _middle(values: Numbers) -> float:
    cut = len(values) // 4
    return float(np.sort(values)[cut : len(values) - cut].mean())
