"""Benchmarks: the measurements behind claims in the documents. Ratios are measured within one run."""

import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:  # training programs import this package in Pythons that have only PyTorch
    import psutil


@dataclass(frozen=True, slots=True)
class BenchmarkRow:
    """One measured value, its target, and whether it meets it (None: no target)."""

    name: str
    value: str
    bar: str = ""
    ok: bool | None = None


def seconds(work: Callable[[], object]) -> float:
    """The duration of the work."""
    start = time.perf_counter()
    work()
    return time.perf_counter() - start


def cpu_seconds(work: Callable[[], object], times: int = 1) -> float:
    """The CPU time that this process takes for the work, as the mean of so many repetitions."""
    start = time.process_time()
    for _ in range(times):
        work()
    return (time.process_time() - start) / times


def cpu_of(process: "psutil.Process") -> float:
    """The seconds of CPU time that a process has taken since its start."""
    return float(sum(process.cpu_times()[:2]))
