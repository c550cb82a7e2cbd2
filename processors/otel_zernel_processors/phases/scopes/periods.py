"""Finds after how many updates a training loop repeats: 1 in most loops, 2 in a GAN, 6 if its critic has five."""

from collections import deque
from typing import NamedTuple

_LONGEST = 16
"""The longest period that is searched."""
_FEWEST = 12
"""A period is proven by this many units in a row that repeat those before, or by two whole periods if that is more."""


class Signature(NamedTuple):
    """A unit: what happens between two updates."""

    updates: tuple[str, ...]
    """The names of the optimizers."""
    backwards: int
    operators: int
    """The number of model operators; it may differ between equal passes if the model is dynamic."""


class Periods:
    """The period of a sequence of units."""

    def __init__(self) -> None:
        self._signatures: deque[Signature] = deque(maxlen=_LONGEST)
        self._gaps: deque[int | None] = deque(maxlen=2 * _LONGEST)
        self._repeats = [0] * _LONGEST
        self._repeats_roughly = [0] * _LONGEST
        self._origin = 0
        self._cycle: list[Signature] = []
        """The units of a period, by their position."""
        self._is_exact = False
        """Whether equal units have equal numbers of operators."""
        self._fits = self._misses = 0
        """The latest units in a row at their positions, and the others since two whole periods of them."""
        self.count = 0
        """Number of units."""
        self.period = 1

    def add(self, signature: Signature, gap_ns: int | None) -> None:
        """Adds the next unit. `gap_ns` is the time before its first pass, if known: a step begins with the longest."""
        for distance, earlier in enumerate(reversed(self._signatures)):
            same = earlier[:2] == signature[:2]
            self._repeats_roughly[distance] = self._repeats_roughly[distance] + 1 if same else 0
            same = same and earlier.operators == signature.operators
            self._repeats[distance] = self._repeats[distance] + 1 if same else 0
        self._signatures.append(signature)
        self._gaps.append(gap_ns)
        self.count += 1
        if self.period > 1:
            self._follow(signature)
        period = self._proven() or (1 if self._misses >= _FEWEST else self.period)
        if period != self.period and (self._misses >= _FEWEST or period % self.period == 0):
            self._begin(period)

    def position_of(self, number: int) -> int:
        """The position of a unit in its period. Both count from 0."""
        return (number - self._origin) % self.period

    @property
    def is_proven(self) -> bool:
        """Whether equal units have shown the period, also if it is 1."""
        return any(count >= max(_FEWEST, 2 * at) for at, count in enumerate(self._repeats, 1))

    def _begin(self, period: int) -> None:
        self.period, self._origin = period, self._beginning(period)
        self._is_exact = period == _shortest(self._repeats)
        self._fits = self._misses = 0
        latest = list(self._signatures)[-period:]
        first = self.position_of(self.count - period)
        self._cycle = latest[-first:] + latest[:-first]

    def _follow(self, signature: Signature) -> None:
        """A loop may leave out an update, for example one whose gradients are not finite. Then the unit is the next one
        of the period that it is like, and the period goes on from there."""
        at = self.position_of(self.count - 1)
        ahead = self._cycle[at:] + self._cycle[:at]
        left_out = next((count for count, unit in enumerate(ahead) if self._are_alike(signature, unit)), None)
        if left_out == 0:
            self._fits += 1
        else:
            self._fits, self._misses = 0, self._misses + 1
            self._origin -= left_out or 0
        if self._fits >= 2 * self.period:
            self._misses = 0

    def _are_alike(self, unit: Signature, other: Signature) -> bool:
        return unit == other if self._is_exact else unit[:2] == other[:2]

    def _proven(self) -> int:
        """0 if none is. Optimizers and backward passes decide. Units that only differ in their operators refine the
        period."""
        roughly, exactly = _shortest(self._repeats_roughly), _shortest(self._repeats)
        return exactly if exactly and exactly % roughly == 0 else roughly

    def _beginning(self, period: int) -> int:
        """The number of a unit that begins a period: before it lies the longest time."""
        first = self.count - len(self._gaps)
        gaps = list(self._gaps)[: len(self._gaps) // period * period]
        known = ([gap for gap in gaps[at::period] if gap is not None] for at in range(period))
        means = [sum(some) / max(len(some), 1) for some in known]
        return first + means.index(max(means))


def _shortest(repeats: list[int]) -> int:
    """The shortest proven period; 0 if none is."""
    proven = (at for at, count in enumerate(repeats, 1) if count >= max(_FEWEST, 2 * at))
    return next(proven, 0)
