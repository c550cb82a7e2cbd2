"""Styled text in cells of a terminal. Text of a feed becomes harmless here."""

import unicodedata
from dataclasses import dataclass

from otel_zernel.text import visible

StyledSpan = tuple[str, str]
"""A text, and the name of its style; empty for none. The names are those of `terminal.colours`."""
StyledLine = tuple[StyledSpan, ...]

_LONGEST = 512
"""Characters of a text that are looked at. No terminal is wider."""


@dataclass(frozen=True, slots=True)
class Surface:
    """What can be drawn on."""

    columns: int
    rows: int | None
    """None: as many as there are, for a pipe."""
    is_unicode: bool = True

    def clean(self, text: str) -> str:
        """The text without control characters, and without characters that the output does not have."""
        text = text[:_LONGEST]
        if text.isascii() and text.isprintable():
            return text
        text = visible(text)
        return text if self.is_unicode else text.encode("ascii", "replace").decode()

    def glyph(self, unicode: str, ascii_: str) -> str:
        """The character, or its replacement in ASCII."""
        return unicode if self.is_unicode else ascii_

    def cut(self, text: str, width: int) -> str:
        """The clean text in at most `width` cells, with an ellipsis if it is longer."""
        text = self.clean(text)
        if cells(text) <= width:
            return text
        mark = self.glyph("…", "~") if width > 1 else ""
        return _first_cells(text, width - len(mark)) + mark

    def fit(self, text: str, width: int, *, right: bool = False) -> str:
        """The clean text in exactly `width` cells."""
        text = self.cut(text, width)
        space = " " * (width - cells(text))
        return space + text if right else text + space


def cells(text: str) -> int:
    """The cells of a terminal that a clean text takes: East Asian characters take two, combining ones none."""
    return len(text) if text.isascii() else sum(map(_cell, text))


def _cell(character: str) -> int:
    if unicodedata.combining(character) or unicodedata.category(character) in ("Mn", "Me", "Cf"):
        return 0
    return 2 if unicodedata.east_asian_width(character) in "WF" else 1


def _first_cells(text: str, width: int) -> str:
    if text.isascii():
        return text[:width]
    taken = 0
    for position, character in enumerate(text):
        taken += _cell(character)
        if taken > width:
            return text[:position]
    return text


def plain(line: StyledLine) -> str:
    """The line without its styles."""
    return "".join(text for text, _ in line)


def clipped(line: StyledLine, width: int) -> StyledLine:
    """The line in at most `width` cells. Its texts are clean."""
    if cells(plain(line)) <= width:
        return line
    kept: list[StyledSpan] = []
    for text, style in line:
        taken = cells(text)
        if taken > width:
            kept.append((_first_cells(text, width), style))
            break
        kept.append((text, style))
        width -= taken
    return tuple(kept)
