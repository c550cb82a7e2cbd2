"""The first sentence on a job, which says what to change and what it saves, and the name of a cause."""

from typing import Final

from otel_zernel_libraries.training.amounts import amount, percent
from otel_zernel_libraries.training.causes.cause import Cause, CauseName, JobAnswer, Unknown
from otel_zernel_libraries.training.words import cause_name, cause_sentence, moment_name

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
        best = f"a step would at best take {amount(answer.best)} instead of {amount(answer.step)}"
        return f"Nothing worth changing was found: {best}."
    cause, step = answer.causes[0], answer.step
    sentence = cause_sentence(cause.cause, rank=cause.rank, activity=cause.activity, position=cause.position)
    if not cause.gain:  # it takes no time, but ends the job
        return " ".join([f"{sentence}.", *(one.text for one in cause.evidence)])
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
