"""The verdict that alerts match, by the first cause of a job. docs/causes.md has the same table."""

from typing import Final

from otel_zernel_libraries.training.amounts import amount, percent
from otel_zernel_libraries.training.causes.cause import Cause, CauseName, JobAnswer, Unknown
from otel_zernel_libraries.training.ledger import Activity
from otel_zernel_libraries.training.words import cause_name, cause_sentence, moment_name

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


_TIMES: Final = 1.1
"""From so many times as many steps on, the gain is a factor; below it, a percentage."""

_FEW: Final = 20
"""Steps. The noise of fewer ones may be as large as a cause."""


def lead_of(answer: JobAnswer) -> str:
    """`The training thread runs Python while it loads data: this costs 12.4 ms of each 41.0 ms step. ...`"""
    if answer.unknown:
        return f"No cause can be named, because {_why_unknown(answer.unknown, answer.steps)}."
    if answer.waits_first:
        share = percent(answer.waits / answer.step)
        spent = f"{amount(answer.waits)} of each {amount(answer.step)} step ({share})"
        return f"Training waits for ranks that are not seen for {spent}. Watch all ranks to know the reason."
    if not answer.causes:
        best, now = amount(answer.best), amount(answer.step)
        if best == now:
            return f"Nothing worth changing was found: nothing that was looked for makes the step of {now} longer."
        return f"Nothing worth changing was found: a step would at best take {best} instead of {now}."
    cause, step = answer.causes[0], answer.step
    sentence = cause_sentence(cause.cause, rank=cause.rank, activity=cause.activity, position=cause.position)
    if not cause.gain:  # it takes no time, but ends the job
        return " ".join([f"{sentence}.", *(fact.text for fact in cause.evidence)])
    left = max(step - cause.gain, 0.0)
    return (
        f"{sentence}: this costs {amount(cause.gain)} of each {amount(step)} step. "
        f"Without it, a step takes about {amount(left)} ({_faster(step, left)} steps a second)."
    )


def _why_unknown(unknown: Unknown, steps: int) -> str:
    if unknown is Unknown.GPU_WORK:
        return "too little is known about the work of its GPU"
    if unknown is Unknown.FEW_STEPS or (unknown is Unknown.UNCERTAIN and steps < _FEW):
        return f"{steps} training steps are too few" if steps != 1 else "one training step is too few"
    if unknown is Unknown.UNCERTAIN:
        return f"its {steps} training steps differ too much to be certain"
    return "what was measured does not explain how long its steps take"


def ranks_seen(answer: JobAnswer) -> str:
    """`4 of 8 ranks seen`; empty if all are."""
    is_whole = answer.ranks_seen >= answer.ranks_expected
    return "" if is_whole else f"{answer.ranks_seen} of {answer.ranks_expected} ranks seen"


def label_of(cause: Cause) -> str:
    """`data loading: runs Python`, or the name of the cause, with the rank that has it."""
    rank = "" if cause.rank is None else f", rank {cause.rank}"
    if cause.cause is CauseName.SEGMENT and cause.position and cause.activity:
        return f"{moment_name(cause.position, cause.activity)}{rank}"
    return f"{cause_name(cause.cause)}{rank}"


def _faster(step: float, left: float) -> str:
    ratio = step / left if left else 1e3
    if ratio < _TIMES:
        return f"{(ratio - 1) * 100:.0f} % more"
    return f"{ratio:.1f} times as many" if ratio < 9.95 else f"{min(ratio, 1e3):,.0f} times as many"
