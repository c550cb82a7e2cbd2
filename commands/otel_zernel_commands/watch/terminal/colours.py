"""Styles as SGR codes (ECMA-48 8.3.117)."""

from collections.abc import Mapping
from typing import TextIO

from otel_zernel_commands.watch.styled import StyledLine, plain
from otel_zernel_libraries.training.words import PHASE_WORDS

STYLES: Mapping[str, str] = {
    "bold": "1",
    "dim": "2",
    "heading": "1;36",
    "title": "7",
    "title_old": "7;33",
    "footer": "7",
    "selected": "7",
    "fault": "1;33",
    "trouble": "1;31",
    **{phase: str(words.terminal) for phase, words in PHASE_WORDS.items()},
    # Bars have the colour behind their letters: 10 more than in front.
    **{f"on_{phase}": f"{words.ink};{words.terminal + 10}" for phase, words in PHASE_WORDS.items()},
}
"""By the name of a style."""
WITHOUT_COLOURS: Mapping[str, str] = {"title": "7", "title_old": "7", "footer": "7", "selected": "7", "heading": "1"}
"""With `NO_COLOR`, which asks for no colours and leaves bold and reverse (no-color.org)."""


def is_coloured(stream: TextIO, environ: Mapping[str, str], *, refused: bool = False) -> bool:
    """Whether an output gets colours."""
    return stream.isatty() and not refused and not environ.get("NO_COLOR") and not is_dumb(environ)


def is_dumb(environ: Mapping[str, str]) -> bool:
    """Whether the terminal cannot move its cursor."""
    return environ.get("TERM", "") in ("", "dumb")


def rendered(line: StyledLine, styles: Mapping[str, str]) -> str:
    """The line with SGR codes."""
    if not styles:
        return plain(line)
    return "".join(f"\x1b[{styles[style]}m{text}\x1b[m" if style in styles else text for text, style in line)


def styles_for(environ: Mapping[str, str], *, is_coloured: bool) -> Mapping[str, str]:
    """The styles of a terminal."""
    if is_dumb(environ):
        return {}
    return STYLES if is_coloured else WITHOUT_COLOURS
