"""The columns of a table: those that fit, with their widths, and their heading."""

from collections.abc import Callable, Container, Iterable, Sequence
from dataclasses import dataclass
from typing import Generic, TypeVar

from otel_zernel_commands.watch.styled import StyledLine, StyledSpan, Surface, cells

RowT = TypeVar("RowT")


@dataclass(frozen=True, slots=True)
class Column(Generic[RowT]):
    """A column: `cell` is its text, empty if the value is not known."""

    title: str
    cell: Callable[[RowT], str]
    is_right: bool = True
    sort: str = ""
    """The key of `SORT_KEYS` that sorts by it."""
    most: int = 8
    """Cells that it takes at most, if its title does not need more."""
    least: int = 0
    shrinks: bool = False
    """Whether it takes the room that is left if it needs more, down to its title."""


def fitting(
    columns: Iterable[Column[RowT]], rows: Sequence[RowT], surface: Surface, kept: Container[Column[RowT]] = ()
) -> list[tuple[Column[RowT], int]]:
    """The columns and their widths, up to the first one that does not fit. Columns without a value are not there, but
    for those in `kept`."""
    fitted: list[tuple[Column[RowT], int]] = []
    left = surface.columns - 1
    for column in columns:
        widest = max((cells(surface.clean(column.cell(row))) for row in rows), default=0)
        if not widest and column not in kept:
            continue
        width = max(min(widest, column.most), len(column.title) + bool(column.sort), column.least)
        width = min(width, left - 1) if column.shrinks else width
        if width + 1 > left or width < len(column.title):
            break
        fitted.append((column, width))
        left -= width + 1
    return fitted


def heading(
    columns: Iterable[tuple[Column[RowT], int]], surface: Surface, mark: Callable[[Column[RowT]], str] = lambda _: ""
) -> StyledLine:
    """The titles, each with its mark."""
    spans: list[StyledSpan] = [(" ", "heading")]
    for column, width in columns:
        spans.append((surface.fit(column.title + mark(column), width, right=column.is_right) + " ", "heading"))
    return tuple(spans)
