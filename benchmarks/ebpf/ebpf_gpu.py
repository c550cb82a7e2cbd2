"""The slowdown of a training on a real GPU that a collector watches.

Needs root, Linux 6.13, a GPU and PyTorch with CUDA, and takes four minutes. The model is a GPT-2 with 3 layers in eager
mode and a batch of 2: the GPU waits for the host, so that every probe delays the step. Turns alone and watched follow
each other (alone, watched, alone, ...). A watched turn starts after sampling has settled.
"""

import os
import statistics
import subprocess
import sys
from collections.abc import Iterator
from contextlib import closing, contextmanager

from benchmarks import BenchmarkRow
from benchmarks.ebpf.ebpf_torch import Estimate, estimate
from benchmarks.training.watched_training import Steps, Training, collector, why_not
from otel_zernel.clock import SystemClock
from otel_zernel.testing import make_context
from otel_zernel_receivers.ebpf.config import EbpfConfig
from tests.receivers.ebpf.watching import Watch, doubles, numbers

PAIRS = 50
"""Blocks with and without probes."""
ROUNDS = 4
"""Times that the training is watched, in each configuration."""
BLOCKS = 5
"""Compared blocks of each turn."""
SETTLING_BLOCKS = 12
"""Blocks after attaching that do not count: sampling decides from averages over 5 s."""
STEPS = 100
FILES = 4
"""Probed files of PyTorch with CUDA: libtorch_cpu, libtorch_python, libcudart, libcuda."""
CONFIGS = {"max_overhead 3 %": "{}", "no sampling": "{max_overhead: 0}"}

# Trains one block for each input line, and prints the duration of each step, as the job of watched_training.py does.
_JOB = """
import json, os, sys, time, torch
from benchmarks.training.gpt import WORDS, Gpt
steps = int(sys.argv[1])
torch.set_num_threads(1)
os.sched_setaffinity(0, set(sorted(os.sched_getaffinity(0))[:4]))  # away from the collector
model = Gpt().to("cuda")
optimizer = torch.optim.AdamW(model.parameters())
tokens = torch.randint(0, WORDS, (2 * steps, 64)).to("cuda")
for _ in sys.stdin:
    wall, cpu = [time.perf_counter()], [time.thread_time()]
    for batch in torch.utils.data.DataLoader(torch.utils.data.TensorDataset(tokens.cpu()), batch_size=2):
        loss = model(batch[0].to("cuda"))
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        loss.item()
        wall.append(time.perf_counter())
        cpu.append(time.thread_time())
    print(json.dumps([[end - begin for begin, end in zip(ends, ends[1:])] for ends in (wall, cpu)]), flush=True)
"""


def run() -> list[BenchmarkRow]:
    """Two rows per configuration."""
    if reason := why_not():
        return [BenchmarkRow("eBPF: slowdown of a training on a GPU", f"skipped: {reason}")]
    with _training() as job:
        job.train()
        rows = [*_paired_rows(job)]
        if os.environ.get("ALL", "1") == "1":
            rows += [row for name, config in CONFIGS.items() for row in _rows(name, config, job)]
    return rows


def _paired_rows(job: Training) -> Iterator[BenchmarkRow]:
    """The cost of all probes, from short blocks in turns: attaching without a collector takes a moment."""
    alone, watched, hits, seconds = [], [], 0.0, 0.0
    for pair in range(PAIRS):
        for on in (pair % 2 == 0, pair % 2 == 1):
            if not on:
                alone.append(_median_step(job.train()))
                continue
            config = EbpfConfig(max_overhead=0)
            with closing(Watch(config, make_context(clock=SystemClock()))) as watch:
                watch.attach()
                watched.append(_median_step(job.train()))
                batch, pid = watch.read(), job.process.pid
                hits += sum(numbers(batch, "zernel.probe.hits", process_pid=pid))
                seconds += sum(doubles(batch, "zernel.probe.time", process_pid=pid))
    step_us, steps = statistics.median(alone) * 1e6, PAIRS * STEPS
    added = estimate([(on - off) * 1e6 for off, on in zip(alone, watched, strict=True)])
    ratios = estimate([on / off - 1 for off, on in zip(alone, watched, strict=True)])
    control = estimate([two / one - 1 for one, two in zip(alone[::2], alone[1::2], strict=True)])
    yield BenchmarkRow(f"eBPF: GPU step of {step_us / 1e3:.2f} ms, all probes: slowdown", _shown(ratios))
    yield BenchmarkRow("eBPF: the same: control, blocks without probes", _shown(control))
    yield BenchmarkRow("eBPF: time added to a GPU step", f"{added.middle:.0f} us ({added.low:.0f} to {added.high:.0f})")
    yield BenchmarkRow("eBPF: the receiver's own estimate", f"{hits / steps:.0f} hits, {seconds / steps * 1e6:.0f} us")


def _median_step(block: Steps) -> float:
    return statistics.median(block.wall[5:])


@contextmanager
def _training() -> Iterator[Training]:
    command = [sys.executable, "-c", _JOB, str(STEPS)]
    pipe = subprocess.PIPE
    with subprocess.Popen(command, stdin=pipe, stdout=pipe, text=True, bufsize=1) as process:
        try:
            yield Training(process)
        finally:
            process.kill()


def _rows(name: str, config: str, job: Training) -> Iterator[BenchmarkRow]:
    alone, watched = [_turn(job)], []
    for _ in range(ROUNDS):
        with collector(FILES, config):
            for _ in range(SETTLING_BLOCKS):
                job.train()
            watched.append(_turn(job))
        alone.append(_turn(job))
    step_ms = statistics.median(_wall(alone)) * 1e3
    yield BenchmarkRow(f"eBPF: GPU step of {step_ms:.1f} ms, {name}: slowdown", _shown(_slowdown(alone, watched)))
    yield BenchmarkRow(f"eBPF: the same, {name}: control", _shown(_slowdown(alone, alone[1:])))


def _turn(job: Training) -> list[Steps]:
    return [job.train() for _ in range(BLOCKS)]


def _wall(turns: list[list[Steps]]) -> list[float]:
    """The median step of each block, in seconds."""
    return [statistics.median(block.wall[5:]) for turn in turns for block in turn]


def _slowdown(alone: list[list[Steps]], others: list[list[Steps]]) -> Estimate:
    """The slowdown of each block of `others` over the mean of the turns alone before and after it."""
    ratios = []
    for number, turn in enumerate(others):
        beside = statistics.fmean(_wall(alone[number : number + 2]))
        ratios += [seconds / beside - 1 for seconds in _wall([turn])]
    return estimate(ratios)


def _shown(found: Estimate) -> str:
    return f"{found.middle:.1%} ({found.low:.1%} to {found.high:.1%})"
