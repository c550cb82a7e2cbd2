"""The rows of the tables of times."""

from typing import NamedTuple

from otel_zernel_commands.why.findings import DeviceTime, JobFindings
from otel_zernel_libraries.training import activity_words, detail_name, phase_name, position_name


class TimeRow(NamedTuple):
    """A line of a table of times."""

    name: str
    per_step: float
    share: float
    phase: str
    """For its colour; empty for a GPU's."""
    is_detail: bool = False


DEVICE_HEADING = "What the GPU does meanwhile"
_SMALL = 0.005
"""Activities below this share have no line of their own."""


def time_rows(job: JobFindings) -> list[TimeRow]:
    """The positions with their activities. A program without PyTorch's scopes has phases and their details."""
    rows: list[TimeRow] = []
    for at in job.times:
        rows.append(TimeRow(position_name(at.position), at.per_step, at.share, at.phase))
        shown = [one for one in at.activities if one.share >= _SMALL]
        if [one.activity for one in shown] == ["unknown"]:
            continue
        rows += [
            TimeRow(activity_words(one.activity), one.per_step, one.share, at.phase, is_detail=True) for one in shown
        ]
    if rows:
        return rows
    several = {row.phase for row in job.shares if sum(1 for one in job.shares if one.phase == row.phase) > 2}
    return [
        TimeRow(
            detail_name(row.detail) if row.detail else phase_name(row.phase),
            *(row.per_step, row.share, row.phase),
            is_detail=bool(row.detail),
        )
        for row in job.shares
        if not row.detail or row.phase in several
    ]


def device_rows(device: DeviceTime) -> list[TimeRow]:
    """What the GPU does: the time in which it certainly works, in which it certainly waits, and the rest."""
    parts = [("busy", device.busy)]
    parts += [(f"has no work: {position_name(at)}", spent) for at, spent in device.starved.items()]
    parts += [("busy or not, which is unknown", device.undetermined)] if device.undetermined else []
    step = sum(spent for _, spent in parts) or 1.0
    return [TimeRow(name, spent, spent / step, "") for name, spent in parts]


def times_heading(job: JobFindings) -> str:
    """The heading of the table of times."""
    return "Where a step's time goes" if job.steps.count else "Where the time goes"
