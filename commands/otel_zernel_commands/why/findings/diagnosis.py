"""The first sentence on a job: what to change and what it saves, or why that is not known."""

from collections.abc import Sequence

from otel_zernel_commands.why.findings.groups import JobGroup
from otel_zernel_commands.why.findings.report import Diagnosis, GpuRow, PositionTime, TimeShare
from otel_zernel_libraries.gpu_names.xids import xid_text
from otel_zernel_libraries.training.amounts import amount, percent
from otel_zernel_libraries.training.causes import CauseName, JobAnswer, lead_of, verdict_of
from otel_zernel_libraries.training.hangs import age_words, hang_advice, hang_sentences
from otel_zernel_libraries.training.verdicts import ESSENTIAL_MARKS, FEWEST_STEPS
from otel_zernel_libraries.training.words import detail_name, phase_name, position_name, throttle_name, verdict_words

_THROTTLED = 0.1
"""The share of readings with lowered clocks that is worth a sentence."""
_USUAL = "sw_power_cap"
"""A GPU that computes all the time meets its power limit."""
_NOT_WHOLE = "No cause can be named, because too few steps were seen from their begin to their end."
_OF_RANKS = frozenset({CauseName.STRAGGLER, CauseName.IMBALANCE})
_LATE = 0.03
"""The lateness of a rank, or a wait for others, as a share of a step, that is worth a sentence."""


def answer_of(group: JobGroup) -> JobAnswer | None:
    """The causes of a job. None if its steps are too few, or not known well enough to name a cause."""
    answer = group.answer
    if any(process.source != "scopes" for process in group.processes) or group.trained < FEWEST_STEPS or group.is_lossy:
        return None
    return None if answer and (answer.unknown or (not answer.causes and _lacks_marks(group))) else answer


def diagnosis_of(
    group: JobGroup, times: Sequence[PositionTime], shares: Sequence[TimeShare], gpus: Sequence[GpuRow]
) -> Diagnosis:
    """The diagnosis of a job. `gpus` are those that it uses; `shares` are for a program without PyTorch's scopes."""
    answer = answer_of(group)
    if group.hang:
        sentences = hang_sentences(*group.hang)
        verdict, advice = "stopped" if group.hang.hang.is_stop else "hung", tuple(hang_advice(group.hang.hang))
        return Diagnosis(verdict, ". ".join(sentences) + "." + _errors(gpus, group.hang.time), advice=advice)
    if answer is None:
        verdict, sentence = _unknown(group, times, shares)
        return Diagnosis(verdict, sentence, advice=verdict_words(verdict).advice)
    advice = answer.first.advice if answer.first else ()
    return Diagnosis(verdict_of(answer), lead_of(answer) + _late(group, answer) + _throttled(gpus), advice=advice)


def _errors(gpus: Sequence[GpuRow], now: float) -> str:
    """A sentence on each error of a GPU of the job that the driver has reported; empty without one. `now`: s since
    1970."""
    return "".join(
        f" The driver has reported an error of {gpu.title}{_ago(gpu.xid_times.get(code), now)}: XID {code} "
        f"({xid_text(int(code))})."
        for gpu in gpus
        for code in gpu.xids
        if code.isdecimal()
    )


def _ago(time: float | None, now: float) -> str:
    return "" if time is None else f" {age_words(max(now - time, 0.0))} ago"


def _late(group: JobGroup, answer: JobAnswer) -> str:
    """A sentence on the latest rank, if no cause says why the others wait for it; empty if none is late."""
    lateness = group.job.lateness if group.job else {}
    if not lateness or any(cause.cause in _OF_RANKS or cause.rank is not None for cause in answer.causes):
        return ""
    rank = max(lateness, key=lambda rank: lateness[rank])
    if lateness[rank] < _LATE * answer.step:
        return ""
    return f" Rank {rank} is late by {amount(lateness[rank])} in each step, for a reason that is not known."


def _throttled(gpus: Sequence[GpuRow]) -> str:
    """A sentence on the GPU whose clocks are lowered for the longest time, by heat first; empty if none is."""
    slowed = [(share, gpu.title, reason) for gpu in gpus for reason, share in (gpu.slowed or {}).items()]
    slowed = [slowdown for slowdown in slowed if slowdown[0] >= _THROTTLED]
    if not slowed:
        return ""
    share, title, reason = max(slowed, key=lambda slowdown: (slowdown[2] != _USUAL, slowdown))
    return f" {title} is throttled {percent(share)} of the time ({throttle_name(reason)})."


def _unknown(group: JobGroup, times: Sequence[PositionTime], shares: Sequence[TimeShare]) -> tuple[str, str]:
    """The verdict on a job without an answer, and its sentence."""
    if all(process.source != "scopes" for process in group.processes):
        return _sentence("no_scopes", _largest_phases(group, shares))
    if group.trained < FEWEST_STEPS and not _lacks_marks(group):
        count = "1 training step" if group.trained == 1 else f"{group.trained} training steps"
        return _sentence("too_few_steps", f"{count} in this time. Watch longer, with `--for`")
    if _lacks_marks(group):
        return _sentence("marks_missing", "its PyTorch does not have the functions that show the phases")
    if group.is_lossy:
        lossy = f"in {group.lossy} of {group.trained} training steps"
        return _sentence("lost_events", f"{lossy}. Their phases are in part unknown, and give no verdict")
    rows = sorted(times, key=lambda row: -row.share)[:2]
    largest = " and ".join(f"{position_name(row.position)} ({percent(row.share)})" for row in rows)
    reason = lead_of(group.answer) if group.answer else _NOT_WHOLE
    return "none", f"{reason} Watch longer, with `--for`. Most of the time goes to {largest}."


def _sentence(verdict: str, rest: str) -> tuple[str, str]:
    return verdict, f"{verdict_words(verdict).sentence}: {rest}."


def _lacks_marks(group: JobGroup) -> bool:
    return any(not ESSENTIAL_MARKS.isdisjoint(process.missing_marks) for process in group.processes)


def _largest_phases(group: JobGroup, shares: Sequence[TimeShare]) -> str:
    """The largest phases of a program without known steps."""
    parts = []
    for row in sorted((row for row in shares if not row.detail), key=lambda row: -row.share)[:2]:
        details = (share for share in shares if share.phase == row.phase and share.detail)
        detail = max(details, key=lambda detail: detail.share, default=None)
        mostly = f", mostly {detail_name(detail.detail)}" if detail else ""
        parts.append(f"{percent(row.share)} in {phase_name(row.phase)}{mostly}")
    of_thread = "the thread that calls CUDA spends" if group.processes[0].source == "threads" else "it spends"
    return f"{of_thread} {'; '.join(parts)}"
