"""The whole screen: a pure function from the state, the choices of the user and the size to styled lines."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from otel_zernel_commands.watch.reading import objects
from otel_zernel_commands.watch.screens.gpu_table import limited_gpus, shown_gpus
from otel_zernel_commands.watch.screens.help_page import help_lines
from otel_zernel_commands.watch.screens.rank_page import rank_lines
from otel_zernel_commands.watch.screens.rank_rows import RankFields, shown_ranks
from otel_zernel_commands.watch.screens.rank_table import RankTable
from otel_zernel_commands.watch.screens.summary import (
    FeedStatus,
    header,
    note_lines,
    phase_lines,
    total_line,
    trouble_lines,
    verdict_lines,
)
from otel_zernel_commands.watch.screens.watch_view import WatchView
from otel_zernel_commands.watch.styled import StyledLine, Surface, clipped

_BLANK: StyledLine = (("", ""),)
_FEWEST_FOR_PHASES = 12
"""Rows of a screen. Smaller ones have no bar of the mean phases."""
_FEWEST_FOR_GPUS = 16
_WIDE_FOOTER = 76
_GPU_PART = 3
"""GPUs take at most this part of the rows that are left."""


@dataclass(frozen=True, slots=True)
class DrawnScreen:
    """The lines of a screen, no longer than its width, and what keys need to know of it."""

    lines: list[StyledLine]
    shown: list[str]
    """The ids of the ranks in the order of the table, also of those beyond the screen."""
    page_rows: int
    """Ranks that fit."""


def draw(state: Mapping[str, Any], view: WatchView, status: FeedStatus, surface: Surface) -> DrawnScreen:
    """Draws. Changes only `view.top`, so that the selected rank stays on the screen."""
    ranks = shown_ranks(state, view)
    lines = [header(state, status, surface, is_frozen=view.is_frozen)]
    lines += trouble_lines(state, status, surface)
    room = 1 << 30 if surface.rows is None else max(surface.rows - 1, 0)
    page_rows = 10
    chosen = next((one for one in ranks if one.id == view.selected), ranks[0] if ranks else None)
    if view.page == "help":
        lines += help_lines(surface)
    elif view.page == "rank" and chosen:
        lines += rank_lines(chosen, state, status.now_ms, surface)
    else:
        if not state.get("gpus"):
            lines += note_lines(status, surface)
        page_rows = _table_page(lines, state, ranks, view, surface, room)
    lines = lines[:room]
    if surface.rows is not None:
        lines += [_BLANK] * (room - len(lines))
        lines.append(_footer(view, len(ranks), state, surface))
    return DrawnScreen([clipped(line, surface.columns) for line in lines], [one.id for one in ranks], page_rows)


def _table_page(
    lines: list[StyledLine],
    state: Mapping[str, Any],
    ranks: Sequence[RankFields],
    view: WatchView,
    surface: Surface,
    room: int,
) -> int:
    """Adds verdicts, phases, GPUs and ranks. Returns how many ranks fit."""
    lines += verdict_lines(state, surface)
    if (total := total_line(state, surface)) is not None:
        lines.append(total)
    if room >= _FEWEST_FOR_PHASES and view.panels != "gpus" and (bars := phase_lines(state, surface)):
        lines += [_BLANK, *bars] if room > _FEWEST_FOR_GPUS else bars
    gpus = shown_gpus(state) if view.panels != "ranks" else []
    if gpus and (room >= _FEWEST_FOR_GPUS or view.panels == "gpus"):
        lines += [_BLANK, *limited_gpus(gpus, _gpu_room(room - len(lines), view), surface)]
    if view.panels == "gpus":
        return 10
    if not ranks:
        lines += [_BLANK, ((surface.cut(_no_rank(state, view), surface.columns), "dim"),)]
        return 10
    return _add_ranks(lines, ranks, view, surface, room)


def _add_ranks(
    lines: list[StyledLine], ranks: Sequence[RankFields], view: WatchView, surface: Surface, room: int
) -> int:
    """Adds the table of ranks. Returns how many fit."""
    if room - len(lines) > 4:
        lines.append(_BLANK)
    table = RankTable(ranks, surface, view)
    lines.append(table.heading())
    page_rows = max(room - len(lines), 1)
    view.top = _top(view, [one.id for one in ranks], page_rows)
    for rank in ranks[view.top : view.top + page_rows]:
        is_selected = surface.rows is not None and rank.id == view.selected
        lines.append(table.line(rank, is_selected=is_selected))
    return page_rows


def _gpu_room(left: int, view: WatchView) -> int:
    """Lines for the table of GPUs, with its heading."""
    return left - 1 if view.panels == "gpus" else max(left // _GPU_PART, 2)


def _no_rank(state: Mapping[str, Any], view: WatchView) -> str:
    if view.filter:
        return f"No process matches the filter {view.filter}."
    return "No training process yet." if not state.get("gpus") else "No training process yet; only GPUs report."


def _top(view: WatchView, shown: Sequence[str], page_rows: int) -> int:
    """The first row, so that the selected one is visible."""
    at = shown.index(view.selected) if view.selected in shown else 0
    lowest = max(len(shown) - page_rows, 0)
    return min(max(min(view.top, at), at - page_rows + 1), lowest)


def _footer(view: WatchView, count: int, state: Mapping[str, Any], surface: Surface) -> StyledLine:
    if view.is_typing:
        return ((surface.cut(f"filter: {view.filter}_   Enter keeps it, Esc clears it", surface.columns), "footer"),)
    if view.page != "table":
        back = "Esc back  j k other process  q quit" if view.page == "rank" else "Esc back  q quit"
        return ((surface.fit(f" {back}", surface.columns), "footer"),)
    first, second = view.orders
    order = first.key if second.key == first.key else f"{first.key}, {second.key}"
    total = len(objects(state, "ranks"))
    matching = f"{count} of {total} match {view.filter}  " if view.filter else ""
    if surface.columns < _WIDE_FOOTER:
        return ((surface.fit(f" {matching}q ? s:{first.key} / Enter space", surface.columns), "footer"),)
    text = f" {matching}q quit  ? help  s sort: {order}  / filter  Enter detail  space freeze  every {view.interval:g}s"
    return ((surface.fit(text, surface.columns), "footer"),)
