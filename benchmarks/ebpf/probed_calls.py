"""The cost of the eBPF receiver: a probed call, a reading of the tables, events.

Needs root, a C compiler and Linux 6.13. Calls are compared with an empty probe on the same function in the same run.
"""

import asyncio
import gc
import subprocess
import tempfile
import time
from collections.abc import Iterator
from contextlib import closing
from functools import partial
from pathlib import Path

import numpy as np
from opentelemetry.metrics import NoOpMeter

from benchmarks import BenchmarkRow
from otel_zernel.batch import Batch, Signal
from otel_zernel.clock import SystemClock
from otel_zernel.engine.pipelines.fan_out import FanOut
from otel_zernel.engine.pipelines.pipeline import Pipeline, Stage
from otel_zernel.telemetry import Instruments
from otel_zernel.testing import make_context
from otel_zernel_processors.percentiles.config import PercentilesConfig
from otel_zernel_processors.percentiles.processor import PercentilesProcessor
from otel_zernel_receivers.ebpf.config import EbpfConfig
from otel_zernel_receivers.ebpf.probes.attach_modes import Mode, attach
from otel_zernel_receivers.ebpf.probes.calls import CallKind, Flag, Operation
from otel_zernel_receivers.ebpf.probes.catalogue import Probe
from otel_zernel_receivers.ebpf.probes.libraries import find_attach_points
from otel_zernel_receivers.ebpf.probes.loading import load
from otel_zernel_receivers.ebpf.tables.tables import Limits
from tests.receivers.ebpf.standin import Standin, build
from tests.receivers.ebpf.watching import watched_program

CALLS = 100_000
ROUNDS = 7
SERIES = 1000
EVENTS = 10_000
DRAIN_BAR_MS, HOLD_BAR_MS = 25, 10
BARS = {Mode.SESSION: 1.35, Mode.MULTI: 1.6}
MARK_BAR_NS = 400

_PROBED = r"""
#include <stdio.h>
#include <stdlib.h>
#include <time.h>
__attribute__((noinline)) int probed(int x) { __asm__ volatile("" ::: "rbx"); return x & 0; }
static double now(void) { struct timespec t; clock_gettime(CLOCK_MONOTONIC, &t); return t.tv_sec * 1e9 + t.tv_nsec; }
int main(void)
{
    char line[64];
    while (fgets(line, sizeof line, stdin)) {
        long n = atol(line);
        double began = now();
        for (long i = 0; i < n; i++) probed(i);
        printf("%f\n", (now() - began) / n);
        fflush(stdout);
    }
}
"""


def run() -> list[BenchmarkRow]:
    """All rows. Takes half a minute."""
    with tempfile.TemporaryDirectory() as folder:
        standin = build(Path(folder) / "standin")
        rows = [_call(Path(folder), mode) for mode in BARS]
        return [*rows, _mark(Path(folder)), *_reading(standin), _events(standin), *_waits(standin)]


def _call(folder: Path, mode: Mode) -> BenchmarkRow:
    """A counted call compared with an empty probe."""
    empty, counted = _best(folder, mode, Probe("probed", Operation.RUNTIME_LAUNCH, Flag.RUNTIME))
    ratio = counted / empty
    value = f"{counted:.0f} ns, {ratio:.2f} x an empty probe ({empty:.0f} ns)"
    return BenchmarkRow(f"eBPF: a counted call by {mode}", value, f"<= {BARS[mode]} x", ratio <= BARS[mode])


def _mark(folder: Path) -> BenchmarkRow:
    """A mark, with the snapshot of the thread's counters, compared with an empty probe at the entry alone."""
    empty, marked = _best(folder, Mode.MULTI, Probe("probed", Operation.UNCOUNTED, kind=CallKind.OPERATOR))
    value = f"{marked - empty:+.0f} ns to an empty entry ({empty:.0f} ns)"
    return BenchmarkRow("eBPF: the mark of an operator", value, f"<= {MARK_BAR_NS} ns", marked - empty <= MARK_BAR_NS)


def _best(folder: Path, mode: Mode, probe: Probe) -> tuple[float, float]:
    """The ns of a call with an empty probe, and with the receiver's: the best of several alternating rounds."""
    executable = compiled(folder)
    with executable.open("rb") as file:
        places = find_attach_points(file.fileno(), (probe,)).probed
    best = {"empty": float("inf"), "probe": float("inf")}
    with (
        closing(load(Limits(), (mode,))) as loaded,
        subprocess.Popen([executable], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, bufsize=1) as program,
    ):
        for _ in range(ROUNDS):
            for name in best:
                with closing(attach(loaded.bpf, mode, str(executable), places, name)):
                    best[name] = min(best[name], time_calls(program))
        program.kill()
    return best["empty"], best["probe"]


def compiled(folder: Path) -> Path:
    source, executable = folder / "probed.c", folder / "probed"
    source.write_text(_PROBED)
    subprocess.run(["cc", "-O2", "-rdynamic", "-fcf-protection=none", "-o", executable, source], check=True)
    return executable


def time_calls(program: "subprocess.Popen[str]") -> float:
    """The time of one call in ns."""
    assert program.stdin
    assert program.stdout
    program.stdin.write(f"{CALLS}\n")
    return float(program.stdout.readline())


def _reading(standin: Standin) -> Iterator[BenchmarkRow]:
    """Reads new series, and sends them through a pipeline."""
    limits = EbpfConfig(max_processes=2 * SERIES + 8, max_series=2 * SERIES + 8)
    with watched_program(standin, limits) as (watch, loaded, program):
        program.do(f"cudaLaunchKernel times=200 forks={SERIES}")
        began, began_cpu = time.perf_counter(), time.thread_time()
        count = len(loaded.tables.series.read())
        took_ms, cpu_ms = (time.perf_counter() - began) * 1e3, (time.thread_time() - began_cpu) * 1e3
        ok = count >= SERIES and took_ms <= DRAIN_BAR_MS
        value = f"{took_ms:.1f} ms, {cpu_ms:.1f} ms of CPU"
        yield BenchmarkRow(f"eBPF: reading {SERIES} series", value, f"<= {DRAIN_BAR_MS} ms", ok)
        program.do(f"cudaLaunchKernel times=200 forks={SERIES}")
        held_ms = asyncio.run(_longest_hold_s(list(watch.session.read().batches))) * 1e3
    ok = held_ms <= HOLD_BAR_MS
    yield BenchmarkRow(
        f"eBPF: event loop blocked, {SERIES} series to percentiles", f"{held_ms:.1f} ms", f"<= {HOLD_BAR_MS} ms", ok
    )


async def _longest_hold_s(batches: list[Batch]) -> float:
    """The longest CPU time, in s, for which a pipeline blocked the event loop while it processed the batches."""
    instruments = Instruments(NoOpMeter("benchmark"))
    context = make_context("processors", clock=SystemClock())
    stage = Stage(PercentilesProcessor(PercentilesConfig(), context), instruments.processor("percentiles", "metrics"))
    signals: frozenset[Signal] = frozenset({"metrics"})
    pipeline = Pipeline("metrics", [stage], [], signals, asyncio.Lock())
    emit = FanOut([pipeline], partial(instruments.receiver, "ebpf"))

    async def hand_on() -> None:
        for batch in batches:
            await emit(batch)
            await asyncio.sleep(0)

    gc.collect()
    gc.freeze()  # as the collector does: else a full collection of all imported modules counts
    handing_on, longest = asyncio.create_task(hand_on()), 0.0
    while not handing_on.done():
        since = time.thread_time()
        await asyncio.sleep(0)
        longest = max(longest, time.thread_time() - since)
    return longest


def _events(standin: Standin) -> BenchmarkRow:
    """Reads events from the ring buffer."""
    with watched_program(standin, EbpfConfig(long_wait=0.0)) as (_, loaded, program):
        program.do(f"cudaDeviceSynchronize times={EVENTS}")
        began = time.perf_counter()
        count = len(loaded.tables.ring.read())
        took = time.perf_counter() - began
    return BenchmarkRow("eBPF: reading events", f"{count / took / 1e6:.0f} M/s", "every one", count >= EVENTS)


def _waits(standin: Standin) -> Iterator[BenchmarkRow]:
    """The cost of a wait for the GPU that is a span (`long_wait`), in the program and in the receiver."""
    took_ns, cpu_us = [], []
    for long_wait in ("1h", "0s"):
        config = EbpfConfig.model_validate({"long_wait": long_wait})
        with watched_program(standin, config) as (watch, _, program):
            program.do(f"cudaDeviceSynchronize times={EVENTS}")
            calls = program.calls("cudaDeviceSynchronize")
            began = time.thread_time()
            watch.session.read()
            cpu_us.append((time.thread_time() - began) / EVENTS * 1e6)
            took_ns.append(float(np.median(calls["end"] - calls["start"])))
    value = f"{took_ns[1]:.0f} ns, {took_ns[1] - took_ns[0]:+.0f} ns"
    yield BenchmarkRow("eBPF: a counted wait with a span, to one without", value)
    yield BenchmarkRow("eBPF: the span of a wait in the receiver", f"{cpu_us[1] - cpu_us[0]:.1f} us of CPU")
