"""The answer on a job in words: what to change and what it saves, and what is not worth touching."""

from collections.abc import Iterator
from typing import NamedTuple

from otel_zernel_libraries.training.amounts import amount, percent
from otel_zernel_libraries.training.causes import Cause, CauseName, Evidence, Hidden, JobAnswer, label_of, ranks_seen
from otel_zernel_libraries.training.words import cause_name, moment_name, position_name


class CauseRow(NamedTuple):
    """A line of the ranked list."""

    name: str
    gain: str
    bounds: str
    share: str
    advice: tuple[str, ...]
    evidence: tuple[str, ...]
    lines: tuple[tuple[str, str], ...]
    """A line of code with the call below it, and its seconds a step."""


def cause_rows(answer: JobAnswer) -> list[CauseRow]:
    """The named causes, the largest gain first."""
    return [
        CauseRow(
            name=label_of(cause),
            gain=amount(cause.gain) if cause.gain else "",
            bounds=_bounds(cause) if cause.gain else "no time of a step",
            share=percent(cause.share) if cause.gain else "",
            advice=cause.advice,
            evidence=tuple(fact.text for fact in cause.evidence if not _repeats(fact, cause, answer)),
            lines=tuple(
                (" -> ".join(filter(None, (line.line, line.call))), amount(line.seconds)) for line in cause.lines
            ),
        )
        for cause in answer.causes
    ]


def _bounds(cause: Cause) -> str:
    return f"{amount(max(cause.gain_low, 0.0))} to {amount(cause.gain_high)}"


def _repeats(evidence: Evidence, cause: Cause, answer: JobAnswer) -> bool:
    """Whether the evidence has only the time that its cause saves."""
    is_same = evidence.unit == "s" and amount(evidence.value) == amount(cause.gain)
    return is_same and cause.cause is CauseName.SEGMENT and answer.ranks_expected == 1


def about_texts(answer: JobAnswer) -> Iterator[str]:
    """The lines below the lead: the place of the first cause, or what was looked for; and whether ranks are missing."""
    seen = ranks_seen(answer)
    if answer.first:
        yield where_text(answer.first, answer)
    elif not seen:
        yield _looked_at(answer)
    if seen:
        yield f"{seen}: causes that compare ranks are not named. Run the command on the other machines, too."


def where_text(cause: Cause, answer: JobAnswer) -> str:
    """The rank, the position and the lines of a cause: `Where: rank 1, data loading, at data.py:31 tokenize`."""
    several = ["all ranks"] if answer.ranks_expected > 1 else []
    parts = several if cause.rank is None else [f"rank {cause.rank}"]
    parts += [position_name(cause.position)] if cause.position else []
    parts += [f"at {line}" for line in cause.code[:1]]
    return f"Where: {', '.join(parts) or 'the whole step'}."


def hidden_texts(answer: JobAnswer) -> Iterator[str]:
    """Time that is not worth touching, a sentence each."""
    for time in answer.hidden:
        yield f"{_place(time)}: {amount(time.time)} a step. Without it, a step takes as long."


def _looked_at(answer: JobAnswer) -> str:
    """The causes that would have been seen."""
    names = sorted({cause_name(cause) for cause in answer.looked_at})
    return f"Looked for: {', '.join(names) or 'nothing, since the steps show nothing that one could save'}."


def _place(hidden: Hidden) -> str:
    rank = "" if hidden.rank is None else f", rank {hidden.rank}"
    return f"{moment_name(hidden.position, hidden.activity)}{rank}"
