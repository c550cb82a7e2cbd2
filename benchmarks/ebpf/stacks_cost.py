"""The cost of Python stacks: for a job with steps of 30 ms, and for the collector; py-spy at the same rate beside it.

Needs root and PyTorch, and takes eight minutes. The cost for the job is measured in four ways:

- Around each sample: `sampled_parts` compares short parts of steps with a sample and without. It has the least noise.
- By pairs: the job trains short blocks of steps, alternately with the sampler and without it, and which one comes first
  alternates, too. CPU time of the training thread includes the clock's interrupts and the walks. Each layer fits into
  the second cache of a CPU, because what other programs take of a larger one is noise. So is what a hypervisor takes:
  a step that needs `OUTLIER` more than the usual one of its block does not count, with the sampler or without it.
- By pairs at a higher rate, divided: the cost of a sample is larger than the noise, but its code is in the caches.
- By the kernel's own clock: the time in the walks, plus that of the interrupt as `sampler_cost` measures it.

The collector's part is the CPU time of its reading thread with `stacks` on, less that with `stacks` off. py-spy is
measured if it is installed: `pip install py-spy`.
"""

import resource
import shutil
import statistics
import subprocess
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from typing import TypeVar

from benchmarks import BenchmarkRow
from benchmarks.ebpf.ebpf_torch import Estimate, slowdown
from benchmarks.training.sampled_parts import cost_of_samples, part_job
from benchmarks.training.watched_training import Training, training, why_not
from otel_zernel.clock import SystemClock
from otel_zernel.testing import make_context
from otel_zernel_receivers.ebpf.config import EbpfConfig, StacksConfig
from otel_zernel_receivers.ebpf.receiver import GATHER_INTERVAL
from tests.receivers.ebpf.watching import Watch

ResultT = TypeVar("ResultT")

SAMPLED_S = 120.0
"""Seconds in which samples are compared with the times between them."""
PAIRS, FAST_PAIRS = 200, 50
BLOCK = (256, 272, 22, 16)
"""Width, batch, steps of a block, and layers: about 30 ms a step."""
SETTLING = 2
"""Steps at the beginning of a block that do not count, because caches are cold."""
OUTLIER = 0.02
"""Of a step: 20 times what a sample costs."""
FAST = 499
"""Samples a second of the second measurement."""
WATCHED_S = 20.0
"""Seconds in which the collector's CPU time is counted."""
SLOWDOWN_BAR, COLLECTOR_BAR = 0.003, 0.01 / 8
"""Of the job; of a CPU for each process, so that 8 ranks take 1 %."""


def run() -> list[BenchmarkRow]:
    if reason := why_not():
        return [BenchmarkRow("eBPF: stacks", f"skipped: {reason}")]
    rate = StacksConfig().rate
    by_sample = _around_samples(rate)
    with training(*BLOCK) as job:
        (job_cost, walks), (fast, _) = _slowdown(job, rate, PAIRS), _slowdown(job, FAST, FAST_PAIRS)
        scaled = Estimate(*(value * rate / FAST for value in (fast.middle, fast.low, fast.high)))
        with_stacks, without = (_collector_cpu(job, has_stacks=has_stacks) for has_stacks in (True, False))
        peer = _py_spy(job)
    added = with_stacks - without
    return [
        by_sample,
        _judged("eBPF: stacks, CPU time of a job with steps of 30 ms", job_cost),
        _judged(f"eBPF: the same, at {FAST} samples a second, divided by {FAST / rate:.0f}", scaled),
        BenchmarkRow(
            "eBPF: stacks, of the job's CPU by the kernel's clock",
            f"{walks:.3%}",
            f"<= {SLOWDOWN_BAR:.1%}",
            walks <= SLOWDOWN_BAR,
        ),
        BenchmarkRow(
            "eBPF: stacks, of a CPU in the collector, one process",
            f"{added:.2%} ({without:.2%} without)",
            f"<= {COLLECTOR_BAR:.3%}",
            added <= COLLECTOR_BAR,
        ),
        BenchmarkRow("py-spy at the same rate, of a CPU, one process", peer),
    ]


def _judged(name: str, cost: Estimate) -> BenchmarkRow:
    value = f"{cost.middle:+.3%} ({cost.low:.3%} to {cost.high:.3%})"
    return BenchmarkRow(name, value, f"<= {SLOWDOWN_BAR:.1%}", cost.high <= SLOWDOWN_BAR)


def _config(stacks: StacksConfig | bool) -> EbpfConfig:
    return EbpfConfig.model_validate({"stacks": stacks, "max_overhead": 0})


def _around_samples(rate: int) -> BenchmarkRow:
    """The share of the job's time that it loses around samples."""
    name = "eBPF: stacks, of the job's time around its samples"
    with (
        part_job() as job,
        closing(Watch(_config(StacksConfig(rate=rate)), make_context(clock=SystemClock()))) as watch,
    ):
        watch.attach()
        job.train()
        watch.read()
        watch.session._sampler.set_running(time.monotonic(), is_allowed=True)
        times, end = list[list[int]](), time.monotonic() + SAMPLED_S
        while time.monotonic() < end:
            times += _while(watch.gather, GATHER_INTERVAL, job.train)
            watch.read()
            watch.taken()
    cost = cost_of_samples(times, 1_000_000_000 // rate)
    if cost is None:
        return BenchmarkRow(name, "no sample stands out of the noise")
    middle, low, high = (us * rate / 1e6 for us in (cost.middle, cost.low, cost.high))
    value = f"{middle:.3%} ({low:.3%} to {high:.3%}), {cost.middle:.0f} us a sample"
    return BenchmarkRow(name, value, f"<= {SLOWDOWN_BAR:.1%}", high <= SLOWDOWN_BAR)


def _slowdown(job: Training, rate: int, pairs: int) -> tuple[Estimate, float]:
    """Of blocks with samples against those without; and the share of the samples, by the kernel's clock."""
    without, sampled = list[float](), list[float]()
    walked = trained = 0.0
    with closing(Watch(_config(StacksConfig(rate=rate)), make_context(clock=SystemClock()))) as watch:
        watch.attach()
        job.train()
        watch.read()
        sampler = watch.session._sampler

        turns = [(False, without), (True, sampled)]
        for _ in range(pairs):
            for is_on, blocks in turns:
                sampler.set_running(time.monotonic(), is_allowed=is_on)
                steps = _while(watch.gather, GATHER_INTERVAL, lambda: job.train().cpu)
                most = statistics.median(steps[SETTLING:]) * (1 + OUTLIER)
                blocks.append(statistics.fmean(step for step in steps[SETTLING:] if step <= most))
                trained += sum(steps) * is_on
            turns.reverse()
            sampler.gather()
            walked += sum(reading.seconds for reading in watch.session._tables.samples.read())
            watch.read()
            watch.taken()
    return slowdown(without, sampled), walked / trained


def _collector_cpu(job: Training, *, has_stacks: bool) -> float:
    """The ratio of a CPU that the collector's thread takes."""
    with closing(Watch(_config(has_stacks), make_context(clock=SystemClock()))) as watch:
        watch.attach()
        job.train()
        watch.read()
        used, began, next_read = 0.0, time.monotonic(), time.monotonic()

        def collect() -> None:
            nonlocal used, next_read
            before = time.thread_time()
            watch.gather()
            if time.monotonic() >= next_read:
                next_read += 1.0
                watch.read()
                watch.taken()
            used += time.thread_time() - before

        def train() -> None:
            while time.monotonic() < began + WATCHED_S:
                job.train()

        _while(collect, GATHER_INTERVAL, train)
    return used / (time.monotonic() - began)


def _while(action: Callable[[], object], interval: float, work: Callable[[], ResultT]) -> ResultT:
    """Repeats the action while the work is done in another thread. Returns the result of the work."""
    with ThreadPoolExecutor(1) as thread:
        result = thread.submit(work)
        while not result.done():
            action()
            time.sleep(interval)
        return result.result()


def _py_spy(job: Training) -> str:
    program = shutil.which("py-spy")
    if not program:
        return "not installed"
    seconds = 10
    options = ["--nonblocking", "--rate", "19", "--duration", str(seconds), "--format", "raw", "--output", "/dev/null"]
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    with subprocess.Popen(
        [program, "record", *options, "--pid", str(job.process.pid)],
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    ) as peer:
        while peer.poll() is None:
            job.train()
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    used = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
    return f"{used / seconds:.2%}"
