"""Phases as letters and bars. The letters say what the colours show."""

from collections.abc import Mapping, Sequence
from typing import Any

from otel_zernel_commands.watch.reading import as_number, table
from otel_zernel_commands.watch.styled import StyledLine
from otel_zernel_libraries.training.names import PHASES
from otel_zernel_libraries.training.words import PHASE_WORDS

_RECENT = 10
"""Steps of the timeline that the bar of a rank shows."""


def phase_bar(ratios: Sequence[float], width: int) -> StyledLine:
    """Exactly `width` cells, divided by the ratios of the five phases; blank without any. A phase with a share of
    half a cell or more has a cell."""
    phases = PHASE_WORDS.items()
    return bar([(words.letter, f"on_{phase}", of) for (phase, words), of in zip(phases, ratios, strict=True)], width)


def bar(parts: Sequence[tuple[str, str, float]], width: int) -> StyledLine:
    """Exactly `width` cells, divided by the ratios of the parts: of each its letter, its style and its ratio."""
    total = sum(ratio for _, _, ratio in parts)
    if total <= 0 or width <= 0:
        return ((" " * max(width, 0), ""),)
    exact = [ratio / total * width for _, _, ratio in parts]
    sizes = [int(width) for width in exact]
    by_rest = sorted(range(len(sizes)), key=lambda at: sizes[at] - exact[at])
    for at in by_rest[: width - sum(sizes)]:
        sizes[at] += 1
    return tuple((letter * size, style) for (letter, style, _), size in zip(parts, sizes, strict=True) if size)


def ratios_of(shares: Mapping[str, Any]) -> list[float]:
    """The five shares, in the order of the phases; zeros if they are not known."""
    return [max(as_number(shares.get(phase)) or 0.0, 0.0) for phase in PHASES]


def recent_ratios(rank: Mapping[str, Any], timeline: Sequence[Any]) -> list[float]:
    """The times of the phases in the last steps; without a timeline, the shares of the window."""
    parts = [row[3] for row in timeline[-_RECENT:] if isinstance(row, list) and len(row) > 3]
    try:
        ratios = [max(as_number(sum(of)) or 0.0, 0.0) for of in zip(*parts, strict=True)]
    except (TypeError, ValueError, OverflowError):  # not five numbers each
        ratios = []
    return ratios if len(ratios) == len(PHASES) and any(ratios) else ratios_of(table(rank, "shares"))


def widest_phase(ratios: Any) -> str:
    """The phase with the largest of five ratios; empty if they are no ratios."""
    if not isinstance(ratios, list) or len(ratios) != len(PHASES):
        return ""
    known = [as_number(ratio) or 0.0 for ratio in ratios]
    most = max(known)
    return PHASES[known.index(most)] if most > 0 else ""
