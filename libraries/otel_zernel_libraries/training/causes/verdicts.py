"""The verdict that alerts match, by the first cause of a job."""

from typing import Final

from otel_zernel_libraries.training.causes.cause import Cause, CauseName, JobAnswer

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
    CauseName.SMALL_LAUNCHES: "compute_bound",
}
"""Of all causes but `segment`, whose phase decides."""
_OF_PHASES: Final = {
    "data_loading": "input_bound",
    "gpu_compute": "compute_bound",
    "nccl_collective": "communication_bound",
    "optimizer_step": "optimizer_bound",
}


def verdict_of(answer: JobAnswer) -> str:
    """The value of `zernel.verdict` or `zernel.job.verdict`; `none` without a cause."""
    return verdict_of_cause(answer.causes[0]) if answer.causes else "none"


def verdict_of_cause(cause: Cause) -> str:
    """The verdict of one cause."""
    return _VERDICTS.get(cause.cause) or _OF_PHASES.get(cause.phase, "host_bound")
