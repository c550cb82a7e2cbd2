"""The default bounds of histograms, by unit, and the choice of the bounds of a family.

The bounds of a metric must be the same in all series, all scrapes and all collectors. Otherwise `sum by (le)` adds
buckets of some series and not of others. So they depend on the metric's unit alone, and every series has all of them:
without the bounds above its largest value, a series would be missing in the sums of these bounds.
"""

from collections.abc import Iterable
from dataclasses import dataclass
from functools import cache

from otel_zernel_libraries.prometheus.histograms.bounds import Bounds, bounds_of
from otel_zernel_libraries.prometheus.histograms.exponential import edge


@dataclass(frozen=True, slots=True)
class Octaves:
    """The bounds from 2^first to 2^last, with 2^scale bounds for each power of two.

    They are edges of all exponential histograms whose scale is at least this one.
    """

    first: int
    last: int
    scale: int

    def edges(self) -> Iterable[float]:
        return (edge(index, self.scale) for index in range(self.first << self.scale, (self.last << self.scale) + 1))

    def times(self, power: int) -> "Octaves":
        """The bounds times 2^power."""
        return Octaves(self.first + power, self.last + power, self.scale)


_SECONDS = (Octaves(-20, -10, 1), Octaves(-10, 4, 2), Octaves(4, 12, 1))
"""1 us to 68 min; from 1 ms to 16 s, where steps of a training are, the bounds are finer."""
_BYTES = (Octaves(10, 40, 1),)
_UNITS: dict[str, tuple[Octaves, ...]] = {
    "s": _SECONDS,
    "ms": tuple(bound.times(10) for bound in _SECONDS),
    "us": tuple(bound.times(20) for bound in _SECONDS),
    "ns": tuple(bound.times(30) for bound in _SECONDS),
    "By": _BYTES,
    "By/s": _BYTES,
    "1": (Octaves(-10, 0, 2), Octaves(0, 10, 1)),
    "%": (Octaves(-3, 7, 2),),
    "Cel": (Octaves(3, 7, 3),),
    "W": (Octaves(0, 12, 2),),
    "Hz": (Octaves(0, 26, 0), Octaves(26, 32, 3)),
}
"""Bounds by UCUM unit: one place for the durations, sizes and readings of training nodes."""
_OTHERS = (Octaves(-10, 30, 1),)


@cache
def default_bounds(unit: str) -> Bounds:
    """The bounds of histograms with this UCUM unit: zero, then powers of two with subdivisions."""
    octaves = _UNITS.get(unit, _OTHERS)
    return bounds_of((0.0, *sorted({value for octave in octaves for value in octave.edges()})))


def fixed_bounds(_name: str, unit: str) -> tuple[float, ...]:
    """The default bounds of a metric with this name and UCUM unit."""
    return default_bounds(unit).values


@dataclass(slots=True)
class BucketLayout:
    """The bounds of one family's histograms."""

    grid: Bounds
    """The bounds of exponential histograms, and of histograms whose sender moves its bounds."""
    sender_moves: bool = False
    """Whether a sender has moved the bounds of a histogram of this family. Then all its series are on the grid."""
