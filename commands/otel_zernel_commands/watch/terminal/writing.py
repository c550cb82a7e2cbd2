"""Writes the lines that have changed, in one write."""

import os
from collections.abc import Mapping, Sequence

from otel_zernel_commands.watch.styled import StyledLine
from otel_zernel_commands.watch.terminal.colours import rendered

_BEGIN, _END = "\x1b[?2026h", "\x1b[?2026l"
"""Synchronized output: the terminal shows the whole update at once. Others ignore the codes."""


class LineWriter:
    """Remembers what the terminal shows."""

    def __init__(self, descriptor: int, styles: Mapping[str, str], encoding: str = "utf-8") -> None:
        self._descriptor = descriptor
        self._styles = styles
        self._encoding = encoding
        self._shown: list[StyledLine] = []

    def forget(self) -> None:
        """The next `show` clears the terminal and writes all lines."""
        self._shown = []

    def show(self, lines: Sequence[StyledLine]) -> None:
        """Writes the lines that differ from the last call."""
        if update := self.update(lines):
            write_all(self._descriptor, update.encode(self._encoding, "replace"))

    def update(self, lines: Sequence[StyledLine]) -> str:
        """The text that changes the terminal to these lines; empty if it shows them already."""
        before, self._shown = self._shown, list(lines)
        parts = [] if before else ["\x1b[H\x1b[2J"]
        parts += [
            f"\x1b[{row};1H\x1b[2K{rendered(line, self._styles)}"  # a full line leaves the cursor on its last cell
            for row, line in enumerate(lines, 1)
            if row > len(before) or before[row - 1] != line
        ]
        if len(before) > len(lines):
            parts.append(f"\x1b[{len(lines) + 1};1H\x1b[J")
        return "".join([_BEGIN, *parts, _END]) if parts else ""


def write_all(descriptor: int, data: bytes) -> None:
    """Writes everything. Waits while the terminal does not take it."""
    while data:
        try:
            data = data[os.write(descriptor, data) :]
        except BlockingIOError:
            os.set_blocking(descriptor, True)
