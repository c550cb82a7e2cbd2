"""The last steps of one rank, 72 bytes each."""

from array import array
from typing import Final

from otel_zernel.training import PHASES, StepBar

_WIDTH: Final = 4 + len(PHASES)
Row = list[int | float | list[float]]
"""`[number, start_ms, duration_s, [time in each phase, s], critical]`."""


class StepRows:
    """Rows in order of their start. With more than `most`, the oldest leave."""

    def __init__(self, most: int) -> None:
        self._most = most
        self._cells = array("d")
        self._new = 0
        self._is_reordered = False

    def __len__(self) -> int:
        return len(self._cells) // _WIDTH

    def add(self, bar: StepBar, *, is_critical: bool) -> None:
        """Adds a step. A step that began before the last one is put into its place; one that is known is ignored."""
        start_ms = round(bar.start_ns / 1e6, 3)
        at = len(self)
        while at and self._start(at - 1) > start_ms:
            at -= 1
        if at and self._start(at - 1) == start_ms and self._cells[(at - 1) * _WIDTH] == bar.number:
            return
        spent = (round(one / 1e9, 6) for one in bar.phase_ns)
        cells = array("d", (bar.number, start_ms, round(bar.duration_ns / 1e9, 6), *spent, is_critical))
        self._is_reordered |= at < len(self)
        self._cells[at * _WIDTH : at * _WIDTH] = cells
        self._new += 1
        if len(self) > self._most:
            del self._cells[:_WIDTH]

    @property
    def last_duration(self) -> float | None:
        """The duration (s) of the newest step."""
        return self._cells[-_WIDTH + 2] if self._cells else None

    def rows(self, newest: int | None = None) -> list[Row]:
        """All rows, or the newest ones, the oldest first."""
        count = len(self) if newest is None else min(newest, len(self))
        return [self._row(at) for at in range(len(self) - count, len(self))]

    def take_new(self) -> tuple[list[Row], bool]:
        """The rows since the last call; or all rows and True, if a new one does not belong at the end."""
        new, is_reordered = self._new, self._is_reordered
        self._new, self._is_reordered = 0, False
        return (self.rows() if is_reordered else self.rows(new)), is_reordered

    def _start(self, at: int) -> float:
        return self._cells[at * _WIDTH + 1]

    def _row(self, at: int) -> Row:
        number, start, duration, *spent, critical = self._cells[at * _WIDTH : (at + 1) * _WIDTH]
        return [int(number), start, duration, list(spent), int(critical)]
