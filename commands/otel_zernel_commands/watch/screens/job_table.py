"""The table of jobs, the first screen if there are several. Columns that do not fit leave from the right."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from otel_zernel_commands.watch.screens import amounts
from otel_zernel_commands.watch.screens.jobs import JobFields
from otel_zernel_commands.watch.screens.phase_bars import phase_bar
from otel_zernel_commands.watch.screens.summary import mean_shares
from otel_zernel_commands.watch.styled import StyledLine, StyledSpan, Surface, cells

_BAR = 16
"""Cells of the bar of the mean phases."""


@dataclass(frozen=True, slots=True)
class JobColumn:
    """A column: `cell` is its text, empty if the value is not known."""

    title: str
    cell: Callable[[JobFields], str]
    is_right: bool = True
    most: int = 8


def _rate(job: JobFields) -> str:
    values = job.values("step_rate")
    return amounts.rate(sum(values) / len(values)) if values else ""


def _median(job: JobFields) -> str:
    values = job.values("step", "p50")
    return amounts.seconds(values[len(values) // 2]) if values else ""


def _slowest(job: JobFields) -> str:
    values = job.values("step", "p99")
    return amounts.seconds(values[-1]) if values else ""


BAR = JobColumn("WHERE TIME GOES", lambda _: "x", is_right=False, most=_BAR)
FINDING = JobColumn("FINDING", lambda job: ("! " if job.is_fault else "") + job.sentence, is_right=False, most=80)
COLUMNS = (
    JobColumn("JOB", lambda job: job.name, is_right=False, most=24),
    JobColumn("WHO", lambda job: job.who, is_right=False, most=12),
    JobColumn("STEP/S", _rate),
    JobColumn("P50", _median),
    JobColumn("P99", _slowest),
    BAR,
    FINDING,
)


def job_lines(jobs: Sequence[JobFields], surface: Surface, selected: str) -> list[StyledLine]:
    """A heading, and a line for each job. `selected` is the id of one."""
    columns: list[tuple[JobColumn, int]] = []
    left = surface.columns - 1
    for column in COLUMNS:
        widest = max((cells(surface.clean(column.cell(job))) for job in jobs), default=0)
        width = max(min(widest, column.most), len(column.title))
        width = min(width, left - 1) if column is FINDING else width
        if width + 1 > left or width < len(column.title):
            break
        columns.append((column, width))
        left -= width + 1
    heading = [(surface.fit(column.title, width, right=column.is_right) + " ", "heading") for column, width in columns]
    return [((" ", "heading"), *heading), *(_line(job, columns, surface, job.id == selected) for job in jobs)]


def _line(job: JobFields, columns: Sequence[tuple[JobColumn, int]], surface: Surface, is_selected: bool) -> StyledLine:
    style = "selected" if is_selected else ""
    spans: list[StyledSpan] = [(">" if is_selected else " ", style)]
    for column, width in columns:
        if column is BAR:
            spans += [*phase_bar(mean_shares(job.state), width), (" ", style)]
            continue
        cell = surface.fit(column.cell(job), width, right=column.is_right)
        spans.append((cell + " ", style or ("fault" if column is FINDING and job.is_fault else "")))
    return tuple(spans)
