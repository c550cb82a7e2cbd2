"""The table of GPUs."""

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from otel_zernel_commands.watch.reading import as_number, number, objects, rows, table, text
from otel_zernel_commands.watch.screens import amounts
from otel_zernel_commands.watch.screens.columns import Column, fitting, heading
from otel_zernel_commands.watch.styled import StyledLine, StyledSpan, Surface
from otel_zernel_libraries.training.words import throttle_name

Gpu = Mapping[str, Any]
_BAR = 10
"""Cells of the bar of the utilisation."""


def _percent(key: str) -> Callable[[Gpu], str]:
    return lambda gpu: "" if (value := number(gpu, key)) is None else amounts.percent(value)


def _pair(used: str, total: str, shown: Callable[[float | None], str]) -> Callable[[Gpu], str]:
    def cell(gpu: Gpu) -> str:
        first, second = number(gpu, used), number(gpu, total)
        if first is None:
            return ""
        return shown(first) + (f"/{shown(second)}" if second is not None else "")

    return cell


def _watts(value: float | None) -> str:
    return "-" if value is None else f"{value:.0f}W"[:7]


def _degrees(gpu: Gpu) -> str:
    value = number(gpu, "temperature")
    return "" if value is None else f"{value:.0f}C"[:6]


def gpu_troubles(gpu: Gpu) -> str:
    """Its XID errors, and the reasons that lower its clocks now."""
    xid = [f"XID {code} x{as_number(times) or 0:.0f}" for code, times in table(gpu, "xid").items()]
    return ", ".join([*xid, *(throttle_name(reason) for reason in rows(gpu, "throttled") if isinstance(reason, str))])


def _index(gpu: Gpu) -> str:
    value = number(gpu, "index")
    return "" if value is None else f"{value:.0f}"[:6]


def _bar(gpu: Gpu) -> str:
    return "" if number(gpu, "utilization") is None else "x"


BAR = Column("", _bar, is_right=False, least=_BAR)
TROUBLE = Column("THROTTLED, ERRORS", gpu_troubles, is_right=False, most=40)
COLUMNS: tuple[Column[Gpu], ...] = (
    Column("GPU", _index, most=6),
    Column("BUSY", _percent("utilization"), most=4),
    Column("MEMORY", _pair("memory_used", "memory_total", amounts.size), most=12),
    Column("POWER", _pair("power", "power_limit", _watts), most=12),
    Column("TEMP", _degrees, most=6),
    TROUBLE,
    BAR,
    Column("SM", _percent("sm_active"), most=4),
    Column("TENSOR", _percent("tensor_active"), most=4),
    Column("DRAM", _percent("dram_active"), most=4),
    Column("NAME", lambda gpu: text(gpu, "name"), is_right=False, most=28),
)
HOST: Column[Gpu] = Column("HOST", lambda gpu: text(gpu, "host"), is_right=False, most=24)


def shown_gpus(state: Mapping[str, Any]) -> list[Gpu]:
    """The GPUs by host and index."""
    items = objects(state, "gpus").items()
    return [{"index": None, **gpu} for _, gpu in sorted(items, key=_place)]


def _place(entry: tuple[str, Gpu]) -> tuple[str, float, str]:
    return text(entry[1], "host"), number(entry[1], "index") or 0.0, entry[0]


def limited_gpus(gpus: Sequence[Gpu], most: int, surface: Surface) -> list[StyledLine]:
    """`gpu_lines` in at most this many lines: GPUs with troubles first, and the number of those that are missing."""
    if len(gpus) < max(most, 2):
        return gpu_lines(gpus, surface)
    shown = sorted(gpus, key=lambda gpu: not gpu_troubles(gpu))[: max(most - 2, 0)]
    missing = len(gpus) - len(shown)
    return [*gpu_lines(shown, surface), ((surface.cut(f" and {missing} more GPUs: press g", surface.columns), "dim"),)]


def gpu_lines(gpus: Sequence[Gpu], surface: Surface) -> list[StyledLine]:
    """A heading, and a line for each GPU."""
    several = len({text(gpu, "host") for gpu in gpus}) > 1
    columns = fitting((COLUMNS[0], HOST, *COLUMNS[1:]) if several else (*COLUMNS, HOST), gpus, surface)
    return [heading(columns, surface), *(_line(gpu, columns, surface) for gpu in gpus)]


def _line(gpu: Gpu, columns: Sequence[tuple[Column[Gpu], int]], surface: Surface) -> StyledLine:
    spans: list[StyledSpan] = [(" ", "")]
    for column, width in columns:
        if column is BAR:
            share = min(max(number(gpu, "utilization") or 0.0, 0.0), 1.0)
            full = round(share * width)
            spans += [
                (surface.glyph("█", "#") * full, "gpu_compute"),
                (surface.glyph("░", ".") * (width - full) + " ", "dim"),
            ]
            continue
        cell = surface.fit(column.cell(gpu), width, right=column.is_right)
        spans.append((cell + " ", "fault" if column is TROUBLE and cell.strip() else ""))
    return tuple(spans)
