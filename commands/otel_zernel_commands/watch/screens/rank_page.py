"""One rank in detail."""

from collections.abc import Iterator, Mapping
from typing import Any

from otel_zernel.text import spoken_duration
from otel_zernel_commands.watch.reading import as_number, number, rows, table, text
from otel_zernel_commands.watch.screens import amounts
from otel_zernel_commands.watch.screens.gpu_table import gpu_lines
from otel_zernel_commands.watch.screens.phase_bars import phase_bar
from otel_zernel_commands.watch.screens.rank_rows import RankFields
from otel_zernel_commands.watch.screens.verdicts import rank_name, verdict_sentences
from otel_zernel_commands.watch.styled import StyledLine, Surface
from otel_zernel_libraries.training import PHASE_WORDS, PHASES, phase_name

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
        **{surface.clean(op)[:_LABEL]: _quantiles(one) for op, one in table(fields, "collectives").items()},
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
        ratios = [max(as_number(one) or 0.0, 0.0) for one in row[3]] if isinstance(row[3], list) else []
        bar = phase_bar(ratios, max(round(lasted / longest * most), 1)) if len(ratios) == len(PHASES) and most else ()
        mark = "*" if row[4] == 1 else " "
        yield ((f"{as_number(row[0]) or 0:>10.0f}"[:10] + f" {amounts.seconds(lasted):>7} {mark} ", ""), *bar)
