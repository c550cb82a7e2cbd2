"""The first sentence on a job: what to change, and what it saves."""

from collections.abc import Sequence

from otel_zernel_commands.why.findings.report import Diagnosis, GpuRow
from otel_zernel_libraries.training import cause_sentence, throttle_name
from otel_zernel_libraries.training.amounts import amount, percent
from otel_zernel_libraries.training.causes import Cause, JobAnswer, verdict_of

_THROTTLED = 0.1
"""The share of readings with lowered clocks that is worth a sentence."""
_TIMES = 1.1
"""From so many times as many steps on, the gain is a factor; below it, a percentage."""


def diagnosis_by(answer: JobAnswer, gpus: Sequence[GpuRow] = ()) -> Diagnosis:
    """The diagnosis of a job whose causes are known. `gpus` are those that it uses."""
    if not answer.causes:
        return Diagnosis("none", _nothing(answer) + _throttled(gpus))
    first = answer.causes[0]
    return Diagnosis(verdict_of(answer), lead_of(first, answer.step), advice=first.advice)


def lead_of(cause: Cause, step: float) -> str:
    """`The training thread runs Python while it loads data, which costs 12.4 ms of each 41.0 ms step. ...`"""
    sentence = cause_sentence(cause.cause, rank=cause.rank, activity=cause.activity, position=cause.position)
    left = max(step - cause.gain, 0.0)
    return (
        f"{sentence}: this costs {amount(cause.gain)} of each {amount(step)} step. "
        f"Without it, a step takes about {amount(left)} ({_faster(step, left)} steps a second)."
    )


def _faster(step: float, left: float) -> str:
    ratio = step / left if left else 1e3
    if ratio < _TIMES:
        return f"{(ratio - 1) * 100:.0f} % more"
    return f"{ratio:.1f} times as many" if ratio < 9.95 else f"{min(ratio, 1e3):,.0f} times as many"


def _nothing(answer: JobAnswer) -> str:
    without = f"without all that one could save, a step would take {amount(answer.best)} in place of"
    return f"Nothing that was looked for is worth changing: {without} {amount(answer.step)}."


def _throttled(gpus: Sequence[GpuRow]) -> str:
    """A sentence on the GPU whose clocks are lowered for the longest time; empty if none is."""
    slowed = [(share, gpu.index, reason) for gpu in gpus for reason, share in (gpu.slowed or {}).items()]
    if not slowed or max(slowed)[0] < _THROTTLED:
        return ""
    share, index, reason = max(slowed)
    return f" But GPU {index} is throttled {percent(share)} of the time ({throttle_name(reason)})."
