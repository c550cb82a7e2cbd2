"""The last steps of one rank, 88 bytes each. Steps that come too fast for the rows are merged with their neighbours."""

from array import array
from typing import Final

from otel_zernel_libraries.training.names import PHASES
from otel_zernel_libraries.training.steps import StepBar

_NUMBER, _START, _LASTS, _CRITICAL, _STEPS, _LONGEST, _SPENT = range(7)
"""The cells of a row. `_CRITICAL` counts steps."""
_WIDTH: Final = _SPENT + len(PHASES)
_COVERED_MS: Final = 20_000.0
"""The rows cover at least this time, if there are steps for so long."""
_MOST_STEPS: Final = 10_000
"""Steps of one row."""
Row = list[int | float | list[float]]
"""`[number, start_ms, duration_s, [time in each phase, s], critical]`; merged steps also have `steps, longest_s`."""


class StepRows:
    """Rows in order of their start. With more than `most`, the oldest leave."""

    def __init__(self, most: int = 200) -> None:
        self._most = most
        self._cells = array("d")
        self._each = 1
        """Steps of a new row."""
        self._new = 0
        self._is_reordered = False
        self._last: tuple[float, float] | None = None
        """The start (ms) and the duration (s) of the newest step."""

    def __len__(self) -> int:
        return len(self._cells) // _WIDTH

    def add(self, bar: StepBar, *, is_critical: bool) -> None:
        """Adds a step. A step that began before the last one is put into its place; one that is known is ignored."""
        start_ms = round(bar.start_ns / 1e6, 3)
        lasts = round(bar.duration_ns / 1e9, 6)
        at = len(self)
        while at and self._cell(at - 1, _START) > start_ms:
            at -= 1
        if at and self._has(at - 1, bar.number, start_ms):
            return
        if self._last is None or start_ms >= self._last[0]:
            self._last = start_ms, round(lasts / bar.steps, 6)
        spent = (round(ns / 1e9, 6) for ns in bar.phase_ns)
        critical = bar.steps if is_critical else 0
        cells = array("d", (bar.number, start_ms, lasts, critical, bar.steps, round(bar.longest_ns / 1e9, 6), *spent))
        if at == len(self) and self._new and self._fits(cells):
            self._merge(cells)
            return
        self._is_reordered |= at < len(self)
        self._cells[at * _WIDTH : at * _WIDTH] = cells
        self._new += 1
        if len(self) > self._most:
            self._each = self._needed()
            del self._cells[:_WIDTH]

    @property
    def last_duration(self) -> float | None:
        """The duration (s) of the newest step."""
        return self._last[1] if self._last else None

    def rows(self, newest: int | None = None) -> list[Row]:
        """All rows, or the newest ones, the oldest first."""
        count = len(self) if newest is None else min(newest, len(self))
        return [self._row(at) for at in range(len(self) - count, len(self))]

    def take_new(self) -> tuple[list[Row], bool]:
        """The rows since the last call; or all rows and True, if a new one does not belong at the end."""
        new, is_reordered = self._new, self._is_reordered
        self._new, self._is_reordered = 0, False
        return (self.rows() if is_reordered else self.rows(new)), is_reordered

    def _needed(self) -> int:
        """The steps of a row with which all rows cover the time that they should."""
        covered = self._cell(len(self) - 1, _START) - self._cell(0, _START)
        if covered >= _COVERED_MS or covered <= 0:
            return max(1, self._each // 2) if covered > 2 * _COVERED_MS else self._each
        steps = sum(self._cells[_STEPS::_WIDTH])
        return min(max(1, round(steps / covered * _COVERED_MS / self._most)), _MOST_STEPS)

    def _fits(self, cells: "array[float]") -> bool:
        """Whether a step can be merged into the newest row. A row is never as long as to hide a pause."""
        row = len(self) - 1
        start, usual = self._cell(row, _START), _COVERED_MS / self._most
        pause = cells[_START] - start - self._cell(row, _LASTS) * 1000
        lasts = cells[_START] + cells[_LASTS] * 1000 - start
        return self._cell(row, _STEPS) + cells[_STEPS] <= self._each and pause <= usual and lasts <= 2 * usual

    def _merge(self, cells: "array[float]") -> None:
        row = (len(self) - 1) * _WIDTH
        end = max(self._cells[row + _START] / 1000 + self._cells[row + _LASTS], cells[_START] / 1000 + cells[_LASTS])
        self._cells[row + _LASTS] = round(end - self._cells[row + _START] / 1000, 6)
        self._cells[row + _LONGEST] = max(self._cells[row + _LONGEST], cells[_LONGEST])
        for at in (_CRITICAL, _STEPS, *range(_SPENT, _WIDTH)):
            self._cells[row + at] = round(self._cells[row + at] + cells[at], 6)

    def _has(self, at: int, number: int, start_ms: float) -> bool:
        """Whether a row has this step."""
        end_ms = self._cell(at, _START) + self._cell(at, _LASTS) * 1000
        first = self._cell(at, _NUMBER)
        if not first <= number < first + self._cell(at, _STEPS):
            return False
        return self._cell(at, _START) == start_ms or self._cell(at, _START) < start_ms < end_ms

    def _cell(self, at: int, cell: int) -> float:
        return self._cells[at * _WIDTH + cell]

    def _row(self, at: int) -> Row:
        number, start, duration, critical, steps, longest, *spent = self._cells[at * _WIDTH : (at + 1) * _WIDTH]
        row: Row = [int(number), start, duration, list(spent), int(2 * critical > steps)]
        return row if steps == 1 else [*row, int(steps), longest]
