"""The rank that delays the others, and the part of its step that takes longer than theirs."""

from collections.abc import Sequence
from statistics import median

from otel_zernel_commands.why.findings.facts import Facts
from otel_zernel_commands.why.findings.shares import times_per_step
from otel_zernel_libraries.training.state import SeenProcess


def excess_of(rank: SeenProcess, others: Sequence[SeenProcess]) -> tuple[tuple[str, str], float] | None:
    """The phase and detail in which the rank spends most more time in a step than the median of the others (s).

    Waits for other ranks do not count.
    """
    own, of_others = times_per_step(rank), [times_per_step(one) for one in others]
    keys = {key for key in own if key[0] != "nccl_collective"}
    more = {key: own[key] - median(one.get(key, 0.0) for one in of_others) for key in keys} if of_others else {}
    worst = max(more, key=lambda key: more[key], default=None)
    return (worst, more[worst]) if worst and more[worst] > 0 else None


def straggler_and_others(facts: Facts) -> tuple[SeenProcess, list[SeenProcess]]:
    """The process of the latest rank, and the other processes."""
    comparison, processes = facts.comparison, facts.group.processes
    rank = comparison.latest if comparison.lateness_s else None
    late = next((one for one in processes if one.rank == rank), processes[0])
    return late, [one for one in processes if one is not late]
