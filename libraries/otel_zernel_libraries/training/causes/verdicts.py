"""The verdict that alerts match, by the first cause of a job. docs/causes.md has the same table."""

from typing import Final

from otel_zernel_libraries.training.causes.cause import Cause, CauseName, JobAnswer
from otel_zernel_libraries.training.ledger import Activity

_VERDICTS: Final = {
    CauseName.STRAGGLER: "straggler",
    CauseName.IMBALANCE: "straggler",
    CauseName.SLOW_LINK: "slow_link",
    CauseName.SMALL_COLLECTIVES: "communication_bound",
    CauseName.EXTRA_COLLECTIVES: "communication_bound",
    CauseName.SLOW_STEPS: "unstable",
    CauseName.GROWTH: "unstable",
    CauseName.MEMORY_GROWTH: "unstable",
    CauseName.PERIODIC: "unstable",
    CauseName.COMPILE: "unstable",
    CauseName.FIRST_OF_EPOCH: "input_bound",
    CauseName.ITERATOR_PER_STEP: "input_bound",
    CauseName.WORKERS_TOO_FEW: "input_bound",
    CauseName.WORKERS_SLOW: "input_bound",
    CauseName.WORKERS_RESTART: "input_bound",
    CauseName.COPIES: "input_bound",
    CauseName.EVALUATION: "host_bound",
    CauseName.CHECKPOINT: "host_bound",
    CauseName.CPU_TAKEN: "host_bound",
    CauseName.CPU_QUOTA: "host_bound",
    CauseName.GIL: "host_bound",
    CauseName.THREADS: "host_bound",
    CauseName.DEVICE_CLOCKS: "compute_bound",
    CauseName.DEVICE_SHARED: "compute_bound",
    CauseName.SMALL_LAUNCHES: "host_bound",
}
"""Of all causes but `segment`, whose phase and activity decide."""
_OF_PHASES: Final = {
    "data_loading": "input_bound",
    "nccl_collective": "communication_bound",
    "optimizer_step": "optimizer_bound",
}


_DAY: Final = 86_400.0
_OVER_RANKS: Final = ("straggler", "slow_link")
_OF_ALL: Final = ("none", *_OF_PHASES.values(), "host_bound", "unstable", "compute_bound")
JOB_VERDICTS: Final = (*_OF_ALL, *_OVER_RANKS)
VERDICTS: Final = (*_OF_ALL, "marks_missing")
"""`marks_missing` replaces `none` for a process whose PyTorch does not have an essential mark."""


def verdict_of(answer: JobAnswer | None) -> str:
    """The value of `zernel.job.verdict`, and of `zernel.verdict` for a process that trains alone: `none` without an
    answer, `compute_bound` without a cause."""
    if answer is None or answer.unknown:
        return "none"
    if answer.waits_first:
        return "communication_bound"
    first = answer.first
    if first is None or (first.cause is CauseName.MEMORY_GROWTH and not _ends_soon(first)):
        return "compute_bound"
    return _verdict_of_cause(first)


def verdict_of_rank(answer: JobAnswer | None, rank: int | None) -> str:
    """The value of `zernel.verdict`. The other ranks wait for the one that the first cause is about."""
    first = answer.first if answer else None
    if first and first.rank is not None:
        return _of_moment(first) if first.rank == rank else "communication_bound"
    verdict = verdict_of(answer)
    return "communication_bound" if verdict in _OVER_RANKS else verdict


def _ends_soon(growth: Cause) -> bool:
    """Whether memory that grows meets its limit within a day."""
    return any(evidence.unit == "s" and evidence.value < _DAY for evidence in growth.evidence)


def _verdict_of_cause(cause: Cause) -> str:
    return _VERDICTS.get(cause.cause) or _of_moment(cause)


def _of_moment(cause: Cause) -> str:
    """In a pass, only operators are computing. What else a thread does there is the program's own code."""
    is_computing = cause.phase == "gpu_compute" and cause.activity is Activity.OPERATOR
    return "compute_bound" if is_computing else _OF_PHASES.get(cause.phase, "host_bound")
