"""Who took most of the CPU time for which a process waited."""

from collections import Counter
from collections.abc import Callable, Iterator
from typing import Final

from otel_zernel_libraries.training.cpu_takers import CpuTaker, TakerKind
from otel_zernel_receivers.ebpf.tables.process_table import TakersReading, WatchedProcess

TakerOf = Callable[[WatchedProcess, int], tuple[TakerKind, str]]
"""What a process is to a watched one, and the control group that limits its CPU time, by its pid."""

_MOST_TAKERS: Final = 4
"""Processes that took a CPU, of each process and reading, with their names. The rest is one point."""
_LEAST_TAKEN: Final = 0.01
"""The part of the taken time from which on a process is named."""


def is_other(process: WatchedProcess, pid: int) -> tuple[TakerKind, str]:
    """The answer of a `TakerOf` that knows no process."""
    return TakerKind.OTHER, ""


def takers_of(reading: TakersReading, taker_of: TakerOf) -> Iterator[tuple[CpuTaker, str, int]]:
    """Each taker with its control group and its time, in ns.

    Another thread of the process is one taker, and each of the processes that took most is another.
    """
    least = _LEAST_TAKEN * (reading.own_ns + sum(reading.others_ns.values()))
    by_taker: Counter[tuple[CpuTaker, str]] = Counter()
    rest = 0
    for (pid, name), ns in reading.others_ns.items():
        if ns < least:
            rest += ns
            continue
        kind, cgroup = taker_of(reading.process, pid)
        by_taker[CpuTaker(kind, name), cgroup] += ns
    most = by_taker.most_common(_MOST_TAKERS)
    rest += by_taker.total() - sum(ns for _, ns in most)
    for (taker, cgroup), ns in most:
        yield taker, cgroup, ns
    for kind, ns in ((TakerKind.SELF, reading.own_ns), (TakerKind.OTHER, rest)):
        if ns:
            yield CpuTaker(kind), "", ns
