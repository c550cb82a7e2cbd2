"""Numbers as text, with units."""

import re
from typing import Final

_BEFORE_UNIT: Final = re.compile(r"(?<=\d) (?=(?:s|ms|us|ns|W|C|%)(?:\W|$))")
_UNITS: Final = ((1.0, "s"), (1e-3, "ms"), (1e-6, "us"), (1e-9, "ns"))


def amount(seconds: float) -> str:
    """A duration with three significant digits: `312 ms`, `1.50 s`, `89.6 s`."""
    if not seconds:
        return "0 s"
    size, unit = next(((size, unit) for size, unit in _UNITS if seconds >= 0.9995 * size), _UNITS[-1])
    value = seconds / size
    return f"{value:,.{0 if value >= 99.95 else 1 if value >= 9.995 else 2}f} {unit}"


def percent(share: float) -> str:
    """A share of 1 as text: `78 %`, `3.4 %`. Small shares have a decimal."""
    value = share * 100
    return f"{value:.1f} %" if 0 < value < 9.95 else f"{value:.0f} %"


def with_units_kept(text: str) -> str:
    """With a no-break space between each number and its unit, for code that breaks lines."""
    return _BEFORE_UNIT.sub("\xa0", text)
