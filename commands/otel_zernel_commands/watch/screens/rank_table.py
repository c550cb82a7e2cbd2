"""The table of ranks, and one rank in detail.

Columns that do not fit leave from the right; columns without a value are not there.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any

from otel_zernel.text import spoken_duration
from otel_zernel_commands.watch.reading import as_number, number, rows, table, text
from otel_zernel_commands.watch.screens import amounts
from otel_zernel_commands.watch.screens.columns import Column, fitting, heading
from otel_zernel_commands.watch.screens.gpu_table import gpu_lines
from otel_zernel_commands.watch.screens.phase_bars import phase_bar
from otel_zernel_commands.watch.screens.rank_rows import RankFields
from otel_zernel_commands.watch.screens.verdicts import rank_name, verdict_sentences
from otel_zernel_commands.watch.screens.watch_view import WatchView
from otel_zernel_commands.watch.styled import StyledLine, StyledSpan, Surface
from otel_zernel_libraries.training.names import PHASES
from otel_zernel_libraries.training.words import PHASE_WORDS, phase_name, verdict_words

BAR = "LAST STEPS"
_BAR_WIDTHS = (10, 32)
_WIDE = 60
_WIDE_BAR = 16
"""Cells of the bar at least, if the surface has 60."""
_TEXT_WIDTHS = (4, 24)


def _number(*path: str) -> Callable[[RankFields], str]:
    return lambda rank: "" if (value := number(rank.fields, *path)) is None else f"{value:.0f}"[:8]


def _seconds(*path: str) -> Callable[[RankFields], str]:
    return lambda rank: "" if (value := number(rank.fields, *path)) is None else amounts.seconds(value)


def _size(*path: str) -> Callable[[RankFields], str]:
    return lambda rank: "" if (value := number(rank.fields, *path)) is None else amounts.size(value)


def _text(*path: str) -> Callable[[RankFields], str]:
    return lambda rank: text(rank.fields, *path)


def _wait(quantile: str) -> Callable[[RankFields], str]:
    return lambda rank: "" if (value := rank.wait(quantile)) is None else amounts.seconds(value)


def _rate(rank: RankFields) -> str:
    value = number(rank.fields, "step_rate")
    return "" if value is None else amounts.rate(value)


def _program(rank: RankFields) -> str:
    return text(rank.fields, "program") or text(rank.fields, "executable")


def _gpu(rank: RankFields) -> str:
    index = number(rank.gpu, "index")
    return f"{index:.0f}" if index is not None else text(rank.fields, "gpu")


def _phase(rank: RankFields) -> str:
    return rank.end or (PHASE_WORDS[rank.phase].short if rank.phase else "")


def _verdict(rank: RankFields) -> str:
    return verdict_words(rank.verdict).name


RANK = Column("RANK", _number("rank"), sort="rank")
PID = Column("PID", _number("pid"))
PHASE = Column("PHASE", _phase, is_right=False, sort="phase")
P50 = Column("P50", _seconds("step", "p50"), sort="p50")
STEPS: Column[RankFields] = Column(BAR, lambda rank: "x" if any(rank.ratios) else "", is_right=False)
OTHERS: tuple[Column[RankFields], ...] = (
    Column("P99", _seconds("step", "p99"), sort="p99"),
    Column("LATE", _seconds("lateness"), sort="late"),
    Column("STEP/S", _rate, sort="rate"),
    Column("COLL P50", _wait("p50")),
    Column("COLL P99", _wait("p99")),
    Column("LAUNCH P99", _seconds("launch", "p99"), most=10),
    Column("GPU", _gpu, most=12),
    Column("MEMORY", _size("memory", "used")),
    Column("PEAK", _size("memory", "peak")),
    Column("VERDICT", _verdict, is_right=False, most=20),
    Column("PROGRAM", _program, is_right=False, most=_TEXT_WIDTHS[1]),
    Column("HOST", _text("host"), is_right=False, most=_TEXT_WIDTHS[1]),
)


class RankTable:
    """The columns for these ranks on this surface, with their widths."""

    def __init__(self, ranks: Sequence[RankFields], surface: Surface, view: WatchView) -> None:
        self._surface = surface
        self._view = view
        steps = replace(STEPS, least=_WIDE_BAR if surface.columns >= _WIDE else _BAR_WIDTHS[0])
        has_numbers = any(RANK.cell(rank) for rank in ranks)
        first = (RANK, PHASE, P50, steps, *OTHERS, PID) if has_numbers else (PID, PHASE, P50, steps, *OTHERS)
        fitted = fitting(first, ranks, surface, kept=(RANK, PHASE, P50))
        left = surface.columns - 1 - sum(width + 1 for _, width in fitted)
        self._columns = [
            (column, min(width + left, _BAR_WIDTHS[1]) if column is steps else width) for column, width in fitted
        ]

    def heading(self) -> StyledLine:
        """The titles. An arrow marks the columns that are sorted by."""
        return heading(self._columns, self._surface, self._arrow)

    def _arrow(self, column: Column[RankFields]) -> str:
        order = self._view.orders[0]
        if not column.sort or order.key != column.sort:
            return ""
        return self._surface.glyph("▼", "v") if order.is_descending else self._surface.glyph("▲", "^")

    def line(self, rank: RankFields, *, is_selected: bool) -> StyledLine:
        """A rank. The selected one has a mark, and is drawn in reverse."""
        style = "selected" if is_selected else ("dim" if rank.is_silent or rank.end else "")
        spans: list[StyledSpan] = [(">" if is_selected else " ", style)]
        for column, width in self._columns:
            if column.title == BAR:
                spans += phase_bar(rank.ratios, width)
                spans.append((" ", style))
                continue
            cell = self._surface.fit(column.cell(rank), width, right=column.is_right)
            if column is PHASE and rank.phase and not style:
                spans += [(cell, rank.phase), (" ", style)]
            else:
                spans.append((cell + " ", style))
        return tuple(spans)


_LAST_STEPS = 200
_LABEL = 12
_STEP_BAR = 40


def rank_lines(rank: RankFields, state: Mapping[str, Any], now_ms: float, surface: Surface) -> list[StyledLine]:
    """All that is known of a rank, the most important first."""
    lines = [*_identity(rank, surface), ((" ", ""),), *_phases(rank, surface)]
    lines += list(_durations(rank, now_ms, surface))
    if rank.gpu:
        lines += [((" ", ""),), *gpu_lines([rank.gpu], surface)]
    return [*lines, ((" ", ""),), *_steps(rows(state, "timeline", rank.id), surface)]


def _identity(rank: RankFields, surface: Surface) -> Iterator[StyledLine]:
    dot = surface.glyph(" · ", " - ")
    pid, name = number(rank.fields, "pid"), rank_name(rank.fields, rank.id)
    parts = [
        name,
        f"pid {pid:.0f}" if pid is not None and not name.startswith("pid") else "",
        text(rank.fields, "program") or text(rank.fields, "executable"),
        text(rank.fields, "host"),
        f"job {text(rank.fields, 'job')}" if text(rank.fields, "job") else "",
        f"ended: {rank.end}" if rank.end else "",
    ]
    yield ((surface.cut(dot.join(filter(None, parts)), surface.columns), "bold"),)
    for sentence, is_fault in verdict_sentences({"ranks": {rank.id: rank.fields}}):
        yield ((surface.cut(("! " if is_fault else "") + sentence, surface.columns), "fault" if is_fault else "bold"),)


def _phases(rank: RankFields, surface: Surface) -> Iterator[StyledLine]:
    source = text(rank.fields, "source")
    where = f" (by {source})" if source else ""
    yield ((surface.cut(f"Phases{where}, share of the last minute and time so far", surface.columns), "heading"),)
    width = min(max(surface.columns - 34, 0), 40)
    for phase, words in PHASE_WORDS.items():
        share = number(rank.fields, "shares", phase)
        spent = number(rank.fields, "times", phase)
        if share is None and spent is None:
            continue
        mark = ">" if phase == rank.phase else " "
        label = surface.fit(f"{mark} {words.name}", 16)
        full = round(min(max(share or 0.0, 0.0), 1.0) * width)
        yield (
            (f"{label}{amounts.percent(share):>5} {amounts.seconds(spent):>8}  ", ""),
            (words.letter * full, f"on_{phase}"),
        )


def _durations(rank: RankFields, now_ms: float, surface: Surface) -> Iterator[StyledLine]:
    fields = rank.fields
    yield ((" ", ""),)
    since, phase = number(fields, "phase_since"), phase_name(rank.phase)
    parts = {
        "phase now": phase + (f" for {spoken_duration((now_ms - since) / 1000)}" if phase and since else ""),
        "steps": _joined(("", amounts.count(_known(fields, "steps"))), ("", _per_second(fields))),
        "step": _joined(
            *((q, amounts.seconds(number(fields, "step", q))) for q in ("p50", "p99", "last")),
            ("jitter", amounts.percent(number(fields, "jitter"))),
        ),
        "late": _joined(("", amounts.seconds(number(fields, "lateness")))),
        "CUDA launch": _quantiles(table(fields, "launch")),
        **{
            surface.clean(op)[:_LABEL]: _quantiles(collective)
            for op, collective in table(fields, "collectives").items()
        },
        "workers": _joined(
            ("", amounts.count(number(fields, "workers", "count"))),
            ("CPU time", amounts.seconds(number(fields, "workers", "cpu_time"))),
            ("I/O wait", amounts.seconds(number(fields, "workers", "io_wait"))),
        ),
        "memory": _joined(*((q, amounts.size(number(fields, "memory", q))) for q in ("used", "peak"))),
    }
    for label, value in parts.items():
        if value:
            yield ((surface.fit(label, _LABEL) + " ", "dim"), (surface.cut(value, surface.columns - _LABEL - 1), ""))


def _known(fields: Mapping[str, Any], key: str) -> float | None:
    return number(fields, key)


def _per_second(fields: Mapping[str, Any]) -> str:
    value = number(fields, "step_rate")
    return "-" if value is None else f"{amounts.rate(value)} a second"


def _joined(*parts: tuple[str, str]) -> str:
    """The known values with their names."""
    return ", ".join(f"{name} {value}".strip() for name, value in parts if value != "-")


def _quantiles(of: Any) -> str:
    known = _joined(*((q, amounts.seconds(number(of, q))) for q in ("p50", "p99")))
    times = number(of, "count")
    return known + (f", {amounts.count(times)} in the last minute" if known and times is not None else "")


def _steps(timeline: list[Any], surface: Surface) -> Iterator[StyledLine]:
    """The last steps, the newest first, each as long as its duration by the longest one."""
    known = [row for row in timeline[-_LAST_STEPS:] if isinstance(row, list) and len(row) > 4][::-1]
    if not known:
        return
    yield (
        (surface.cut("Last steps, the newest first; * is the critical path of the job", surface.columns), "heading"),
    )
    longest = max((as_number(row[2]) or 0.0 for row in known), default=0.0) or 1.0
    most = min(max(surface.columns - 22, 0), _STEP_BAR)
    for row in known:
        lasted = as_number(row[2]) or 0.0
        ratios = [max(as_number(duration) or 0.0, 0.0) for duration in row[3]] if isinstance(row[3], list) else []
        bar = phase_bar(ratios, max(round(lasted / longest * most), 1)) if len(ratios) == len(PHASES) and most else ()
        mark = "*" if row[4] == 1 else " "
        yield ((f"{as_number(row[0]) or 0:>10.0f}"[:10] + f" {amounts.seconds(lasted):>7} {mark} ", ""), *bar)
