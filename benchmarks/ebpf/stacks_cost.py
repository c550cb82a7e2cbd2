"""The cost of Python stacks: for a job with steps of 35 ms, and for the collector; py-spy at the same rate beside it.

Needs root and PyTorch, and takes ten minutes. The job trains blocks of steps, alternately with the sampler and without
it. CPU time of the training thread includes the clock's interrupts and the walks, and little of other programs. The
collector's part is the CPU time of its reading thread with `stacks` on, less that with `stacks` off. py-spy is measured
if it is installed: `pip install py-spy`.
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
from benchmarks.ebpf.ebpf_torch import SETTLING, Estimate, slowdown
from benchmarks.training.watched_training import Training, training, why_not
from otel_zernel.clock import SystemClock
from otel_zernel.testing import make_context
from otel_zernel_receivers.ebpf.config import EbpfConfig, StacksConfig
from otel_zernel_receivers.ebpf.receiver import GATHER_INTERVAL
from tests.receivers.ebpf.watching import Watch

ResultT = TypeVar("ResultT")

PAIRS = 200
BLOCK = (1024, 192, 30)
"""Width, batch and steps of a block: about 35 ms a step."""
WATCHED_S = 20.0
"""Seconds in which the collector's CPU time is counted."""
SLOWDOWN_BAR, COLLECTOR_BAR = 0.003, 0.01 / 8
"""Of the job; of a CPU for each process, so that 8 ranks take 1 %."""


def run() -> list[BenchmarkRow]:
    if reason := why_not():
        return [BenchmarkRow("eBPF: stacks", f"skipped: {reason}")]
    with training(*BLOCK) as job:
        job_cost = _slowdown(job)
        with_stacks, without = (_collector_cpu(job, has_stacks=has_stacks) for has_stacks in (True, False))
        peer = _py_spy(job)
    added = with_stacks - without
    return [
        BenchmarkRow(
            "eBPF: stacks, CPU time of a job with steps of 35 ms",
            f"{job_cost.middle:+.2%} ({job_cost.low:.2%} to {job_cost.high:.2%})",
            f"<= {SLOWDOWN_BAR:.1%}",
            job_cost.high <= SLOWDOWN_BAR,
        ),
        BenchmarkRow(
            "eBPF: stacks, of a CPU in the collector, one process",
            f"{added:.2%} ({without:.2%} without)",
            f"<= {COLLECTOR_BAR:.3%}",
            added <= COLLECTOR_BAR,
        ),
        BenchmarkRow("py-spy at the same rate, of a CPU, one process", peer),
    ]


def _config(*, has_stacks: bool) -> EbpfConfig:
    return EbpfConfig(stacks=StacksConfig() if has_stacks else None, max_overhead=0)


def _slowdown(job: Training) -> Estimate:
    """Of blocks with samples against those without."""
    without, sampled = list[float](), list[float]()
    with closing(Watch(_config(has_stacks=True), make_context(clock=SystemClock()))) as watch:
        watch.attach()
        job.train()
        watch.read()
        sampler = watch.session._sampler

        turns = [(False, without), (True, sampled)]
        for _ in range(PAIRS):
            for is_on, blocks in turns:
                sampler.set_running(is_allowed=is_on)
                steps = _while(watch.gather, GATHER_INTERVAL, lambda: job.train().cpu)
                blocks.append(statistics.fmean(steps[SETTLING:]))
            turns.reverse()
            watch.read()
            watch.taken()
    return slowdown(without, sampled)


def _collector_cpu(job: Training, *, has_stacks: bool) -> float:
    """The ratio of a CPU that the collector's thread takes."""
    with closing(Watch(_config(has_stacks=has_stacks), make_context(clock=SystemClock()))) as watch:
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
