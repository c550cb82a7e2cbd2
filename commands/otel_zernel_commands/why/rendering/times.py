"""The rows of the tables of times."""

from typing import NamedTuple

from otel_zernel_commands.why.findings import DeviceTime, JobFindings
from otel_zernel_libraries.training.amounts import amount, percent
from otel_zernel_libraries.training.words import activity_words, detail_name, moment_name, phase_name, position_name


class TimeRow(NamedTuple):
    """A line of a table of times."""

    name: str
    per_step: float
    share: float
    phase: str
    """For its colour; empty for a GPU's."""
    is_detail: bool = False


_SMALL = 0.01
"""Parts below this share have no line of their own."""
_WHOLE = 0.95
"""An activity that takes so much of its position is named beside it."""


def time_rows(job: JobFindings) -> list[TimeRow]:
    """The positions with their activities. A program without PyTorch's scopes has phases and their details."""
    rows: list[TimeRow] = []
    for at in job.times:
        first = at.activities[0]
        if first.share >= _WHOLE * at.share:
            rows.append(TimeRow(moment_name(at.position, first.activity), at.per_step, at.share, at.phase))
            continue
        rows.append(TimeRow(position_name(at.position), at.per_step, at.share, at.phase))
        rows += [
            TimeRow(activity_words(activity.activity), activity.per_step, activity.share, at.phase, is_detail=True)
            for activity in at.activities
            if activity.share >= _SMALL
        ]
    if rows:
        return _with_small_ones_joined(rows, "unknown")
    several = {row.phase for row in job.shares if sum(1 for share in job.shares if share.phase == row.phase) > 2}
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
    step = _whole(device)
    starved = [
        TimeRow(f"has no work: {position_name(at)}", spent, spent / step, "") for at, spent in device.starved.items()
    ]
    rows = [TimeRow("busy", device.busy, device.busy / step, ""), *_with_small_ones_joined(starved, "")]
    unknown = TimeRow("busy or not, which is unknown", device.undetermined, device.undetermined / step, "")
    return [*rows, unknown] if device.undetermined else rows


def device_heading(device: DeviceTime) -> str:
    """The heading of the table of a GPU's time, with the bounds of its use."""
    least, most = (percent(busy / _whole(device)) for busy in (device.busy, device.busy + device.undetermined))
    source = ", by its own records" if device.exact else ""
    return f"What the GPU does meanwhile{source}: busy {least if least == most else f'{least} to {most}'} of the time"


def _whole(device: DeviceTime) -> float:
    return device.busy + sum(device.starved.values()) + device.undetermined or 1.0


def _with_small_ones_joined(rows: list[TimeRow], phase: str) -> list[TimeRow]:
    """Several small rows become one, at the end."""
    small = [row for row in rows if row.share < _SMALL]
    if len(small) < 2:
        return rows
    spent, share = sum(row.per_step for row in small), sum(row.share for row in small)
    name = f"{'has no work: ' if not phase else ''}{len(small)} smaller parts"
    return [*(row for row in rows if row.share >= _SMALL), TimeRow(name, spent, share, phase)]


def times_heading(job: JobFindings) -> str:
    """The heading of the table of times."""
    if not job.steps.count:
        return "Where the time goes"
    mean = sum(at.per_step for at in job.times)
    return f"Where a step's time goes (mean {amount(mean)})" if mean else "Where a step's time goes"
