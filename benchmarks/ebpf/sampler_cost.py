"""The cost of the sampler: of the clock's interrupt, and of a sample of a Python thread with 16 frames.

Needs root. The interrupt is the time that a busy loop loses to a fast clock whose program finds no training process.
"""

import os
import statistics
import time
from contextlib import closing
from pathlib import Path

from benchmarks import BenchmarkRow
from otel_zernel.testing import make_context
from otel_zernel_receivers.ebpf.kernel.kernel_structs import NUMBER, State
from otel_zernel_receivers.ebpf.kernel.unavailable import Unavailable
from otel_zernel_receivers.ebpf.probes.attach_modes import SAMPLER
from otel_zernel_receivers.ebpf.probes.loading import LoadedProbes, load
from otel_zernel_receivers.ebpf.processes.procfs import ProcessFolder
from otel_zernel_receivers.ebpf.sampler.sampler import Sampler, attach_clock
from otel_zernel_receivers.ebpf.tables.samples import INTERRUPT_NS
from otel_zernel_receivers.ebpf.tables.tables import Limits

FAST, PAIRS, FRAMES = 4999, 12, 12
"""Interrupts a second; pairs of loops; frames of the sampled thread below those of the benchmark."""


def run() -> list[BenchmarkRow]:
    try:
        with closing(load(Limits())) as loaded:
            return [_interrupt(loaded), _sample(loaded)]
    except Unavailable as problem:
        return [BenchmarkRow("eBPF: sampler", f"not measured: {problem}")]


def _interrupt(loaded: LoadedProbes) -> BenchmarkRow:
    def with_clock() -> float:
        with closing(attach_clock(loaded.bpf.programs[SAMPLER], FAST)):
            return _busy()

    pairs = [(_busy(), with_clock()) for _ in range(PAIRS)]
    lost_ns = statistics.median((watched - alone) / (alone * FAST) * 1e9 for alone, watched in pairs)
    bar = f"at most {INTERRUPT_NS / 1e3:.0f} us, as assumed"
    return BenchmarkRow("eBPF: interrupt of the sampler", f"{lost_ns / 1e3:.1f} us", bar, lost_ns <= INTERRUPT_NS)


def _busy() -> float:
    """CPU seconds of a fixed amount of work."""
    began, total = time.thread_time(), 0
    for number in range(1_000_000):
        total += number
    return time.thread_time() - began


def _sample(loaded: LoadedProbes) -> BenchmarkRow:
    rows, samples, pid = loaded.tables.rows, loaded.tables.samples, os.getpid()
    rows.array[0]["pid"] = rows.array[0]["tgid"] = pid
    rows.array[0]["trains"], rows.array[0]["state"] = 1, State.LIVE
    loaded.bpf.maps["row_of_tgid"].put(NUMBER.pack(pid), NUMBER.pack(0))
    logger = make_context().logger
    sampler = Sampler(loaded.bpf, loaded.tables, lambda one: ProcessFolder(Path("/proc"), one), 997, logger)
    with closing(sampler):
        sampler.refresh()
        sampler.set_running(time.monotonic(), is_allowed=True)
        _deep(FRAMES)
    samples.gather()
    (reading,) = samples.read()
    ns = reading.seconds * 1e9 / sum(reading.counts.values()) - INTERRUPT_NS
    return BenchmarkRow("eBPF: a sample with 16 Python frames", f"{ns / 1e3:.1f} us")


def _deep(frames: int) -> None:
    if frames:
        _deep(frames - 1)
        return
    for _ in range(20):
        _busy()
