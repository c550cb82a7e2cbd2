"""How finely values are counted by default, for each unit.

A receiver that counts values in histograms and the `percentiles` processor share these defaults. The processor then
returns the same percentiles as if it had received every value. Configurations read them, so this needs no numpy.
"""

LARGEST = 2**62
"""The largest value that the counters of a histogram can track, in units of the resolution."""

_SECONDS = (1e-9, 3600.0)
_BYTES = (1.0, 2.0**60)
_OTHER = (1e-6, 1e12)
_BY_UNIT = {"s": _SECONDS, "By": _BYTES}

UNITS = (*_BY_UNIT, "1")
"""A unit for each of the defaults; `1` stands for all other units."""


def default_range(unit: str) -> tuple[float, float]:
    """The smallest difference that counts and the largest value, for a metric with this unit, in this unit."""
    return _BY_UNIT.get(unit, _OTHER)
