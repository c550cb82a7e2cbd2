"""The latest steps of a training thread in a compact form: when each began and ended, and what the thread did in it.

A step needs about 500 bytes. Times are ns since 1970.
"""

from array import array
from collections.abc import Iterable, Mapping
from typing import Final, NamedTuple

import numpy as np

from otel_zernel_libraries.training.device.streams import NS, Floats, Integers
from otel_zernel_libraries.training.ledger import MOMENTS, Moment, Position, Segment, StepEvent

_ALL: Final = tuple(MOMENTS[position][activity] for position in MOMENTS for activity in MOMENTS[position])
_CODES: Final = {moment: code for code, moment in enumerate(_ALL)}
_IN_EVALUATION: Final = {moment: _CODES[MOMENTS[Position.EVALUATION][moment.activity]] for moment in _ALL}
"""All time in steps of an evaluation counts as one position, also their loads."""
_OPERATORS: Final = {position: len(_ALL) + at for at, position in enumerate(Position)}
"""The rows of the number of operators of a segment have these codes."""
_POSITIONS: Final = {code: position for position, code in _OPERATORS.items()}
_CODE_COUNT: Final = len(_ALL) + len(_OPERATORS)
_COLUMNS: Final = 4
"""Of a row: begin, end, code, and the time (ns) or the number."""
_FIELDS: Final = 5
"""Of a step: begin, end, number, flags, and when its last collective ended."""
_LATEST: Final = 2**62
"""ns since 1970. Later times leave no room for sums."""
_MOST_EVENTS: Final = 64
"""Different events that are counted: operations of collectives are named by their sender."""
_MOST: Final = 4_096
"""Steps that are kept, at most."""
_FEWEST: Final = 16
"""Steps that are kept even if they are older than the window: they may take long."""


class StepFlags:
    """Bits of a step."""

    TRAINED: Final = 1
    """A backward pass ran."""
    UPDATED: Final = 2
    """The optimizer ran."""
    EVALUATION: Final = 4
    LOSSY: Final = 8
    """Events were lost in it."""
    ENDS_EPOCH: Final = 16


class Grid(NamedTuple):
    """What a thread did between neighbouring times."""

    moments: tuple[Moment, ...]
    spent: Floats
    """Seconds, by the time between two neighbours (rows) and by moment (columns)."""
    operators: Mapping[Position, Floats]
    """The number of operators, by position and row."""


class MeasuredSteps:
    """The latest steps of one thread, in order."""

    def __init__(self, window: int) -> None:
        """`window`: the time (ns) for which steps are kept."""
        self._window = window
        self._rows = array("q")
        self._steps = array("q")
        self._events: dict[StepEvent, array[int]] = {}
        self._latest: Mapping[StepEvent, int] = {}
        self._counted: list[tuple[array[int], int]] = []
        """The latest counts, each with the array that it is added to: equal steps may share them."""

    def __len__(self) -> int:
        return len(self._steps) // _FIELDS

    def add(
        self,
        times: tuple[int, int],
        segments: Iterable[Segment],
        events: Mapping[StepEvent, int],
        flags: int,
        number: int,
        met: int = 0,
    ) -> None:
        """Adds the next step. `times`: its begin and its end. `number`: its number in its process. `met`: when its last
        wait for a collective ended; 0 without one."""
        if times[1] > _LATEST:
            return
        if events is not self._latest:
            for event in events:
                if event not in self._events and len(self._events) < _MOST_EVENTS:
                    self._events[event] = array("q", bytes(8 * len(self)))
            self._latest = events
            self._counted = [(counts, events.get(event, 0)) for event, counts in self._events.items()]
        self._steps.fromlist([*times, number, flags, met])
        for counts, count in self._counted:
            counts.append(count)
        rows: list[int] = []
        codes = _IN_EVALUATION if flags & StepFlags.EVALUATION else _CODES
        for start, end, moment, divided, work in segments:
            if divided:
                for part, spent in divided:
                    rows += (start, end, codes[part], spent)
            else:
                rows += (start, end, codes[moment], end - start)
            if work and work.operators:
                rows += (start, end, _OPERATORS[moment.position], work.operators)
        self._rows.fromlist(rows)
        if len(self._steps) > _MOST * _FIELDS or times[1] - self._steps[0] > 1.25 * self._window:
            self._forget(times[1] - self._window)

    def _forget(self, before: int) -> None:
        """Forgets the steps that ended before a time."""
        steps = self.steps
        gone = max(int(np.searchsorted(steps[:, 1], before)), len(steps) - _MOST * 4 // 5)
        gone = max(min(gone, len(steps) - _FEWEST), 0)
        first = int(steps[gone, 0]) if gone < len(steps) else before
        rows = int(np.searchsorted(self._table(self._rows, _COLUMNS)[:, 0], first))
        del self._steps[: gone * _FIELDS]
        del self._rows[: rows * _COLUMNS]
        for counts in self._events.values():
            del counts[:gone]

    @property
    def steps(self) -> Integers:
        """Of each step: begin, end, number, flags, met."""
        return self._table(self._steps, _FIELDS)

    def counts(self) -> dict[StepEvent, Integers]:
        """How often each event has happened in each step."""
        return {event: np.array(counts, dtype=np.int64) for event, counts in self._events.items()}

    def grid(self, times: Integers) -> Grid:
        """What the thread did between neighbouring times. A segment across a time is divided in proportion."""
        begin, end, code, amount = self._table(self._rows, _COLUMNS).T.copy()
        inside = (end > times[0]) & (begin < times[-1]) & (end > begin) & (amount != 0)
        begin, end, code, amount = begin[inside], end[inside], code[inside], amount[inside].astype(np.float64)
        rate = amount / (end - begin)
        begin, end = np.maximum(begin, times[0]), np.minimum(end, times[-1])
        row = np.searchsorted(times, begin, side="right") - 1
        codes = np.flatnonzero(np.bincount(code, minlength=_CODE_COUNT))
        column = np.searchsorted(codes, code)
        cells = np.zeros((len(times) - 1) * len(codes))
        while len(row):
            until = np.minimum(end, times[row + 1])
            np.add.at(cells, row * len(codes) + column, (until - begin) * rate)
            rest = until < end
            begin, end, column, rate, row = until[rest], end[rest], column[rest], rate[rest], row[rest] + 1
        table = cells.reshape(-1, len(codes))
        present = [at for at in codes.tolist() if at < len(_ALL)]
        operators = {_POSITIONS[at]: table[:, column] for column, at in enumerate(codes.tolist()) if at in _POSITIONS}
        return Grid(tuple(_ALL[at] for at in present), table[:, : len(present)] * NS, operators)

    @staticmethod
    def _table(values: "array[int]", columns: int) -> Integers:
        # a copy, since an array that numpy views cannot grow
        return np.array(values, dtype=np.int64).reshape(-1, columns)
