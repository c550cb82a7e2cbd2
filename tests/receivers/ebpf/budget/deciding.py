"""Loads of probes, and the decisions of the budget."""

import numpy as np

from otel_zernel_receivers.ebpf.budget.overhead import AVERAGED, Group, Hits, Overhead
from otel_zernel_receivers.ebpf.probes.cost import ProbeCost
from otel_zernel_receivers.ebpf.tables.process_table import WatchedProcess
from otel_zernel_receivers.ebpf.tables.series import SeriesReading

LAUNCH, SHARE = "zernel.cuda.launch.latency", "zernel.probe.sampled"
LIMIT, CALL_NS = 0.03, 1000.0
COST = ProbeCost(500, CALL_NS, CALL_NS, CALL_NS)
PREPARATIONS = ("load libcudart.so.12", "load libnccl.so.2", "cudaLaunchKernel", "ncclCommInitRank ranks=2 comm=1")
JOB, OTHER_JOB = WatchedProcess(0, 1, 100), WatchedProcess(1, 1, 101)


def decide(budget: Overhead, others: float = 0.0, **rates: float) -> dict[Group, float]:
    """The shares after one decision about a job. `rates` are ratios of a CPU with all probes on."""
    watched = {group: AVERAGED * budget.shares.get(group, 1.0) for group in Group}
    sampled = {Group(name): rate * watched[Group(name)] * 1e9 / CALL_NS for name, rate in rates.items()}
    hits = [Hits(JOB, sampled, others * AVERAGED * 1e9 / CALL_NS), Hits(OTHER_JOB, {Group.LAUNCH: 1}, 1)]
    budget.add(hits, AVERAGED, watched)
    return budget.shares


def load(shares: dict[Group, float], others: float = 0.0, **rates: float) -> float:
    """The ratio of a CPU that probes take with these shares."""
    return others + sum(rate * shares.get(Group(name), 1.0) for name, rate in rates.items())


def series_of(operation: int, *counts: int) -> SeriesReading:
    return SeriesReading(JOB, operation, 0, np.arange(len(counts)), np.array(counts), 700, None, 70)
