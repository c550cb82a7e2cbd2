"""Readable values: three significant digits, with a prefix to the unit."""

import math

_DECIMAL = ((1e12, "T"), (1e9, "G"), (1e6, "M"), (1e3, "k"), (1.0, ""))
_BINARY = ((2.0**40, "Ti"), (2.0**30, "Gi"), (2.0**20, "Mi"), (2.0**10, "Ki"), (1.0, ""))
_FRACTIONS = ((1.0, ""), (1e-3, "m"), (1e-6, "u"), (1e-9, "n"))

# UCUM units that OpenTelemetry uses: the usual symbol, and its prefixes.
_UNITS = {
    "s": ("s", _FRACTIONS),
    "By": ("B", _BINARY),
    "By/s": ("B/s", _BINARY),
    "W": ("W", _DECIMAL),
    "J": ("J", _DECIMAL),
    "Hz": ("Hz", _DECIMAL),
    "Cel": ("°C", ((1.0, ""),)),
}


def readable(value: float, unit: str) -> str:
    """The value with its unit: 0.0000061 s is `6.10 us`, 0.97 of 1 is `97.0 %`. Annotations (`{error}`) are omitted."""
    if not math.isfinite(value):
        return str(value)
    if unit == "1":
        return f"{_three_digits(value * 100)} %"
    if unit not in _UNITS:
        return digits(value) if not unit or unit.startswith("{") else f"{digits(value)} {unit}"
    symbol, prefixes = _UNITS[unit]
    size, prefix = next((one for one in prefixes if abs(value) >= one[0]), prefixes[-1] if value else (1.0, ""))
    return f"{_three_digits(value / size) if prefix else digits(value)} {prefix}{symbol}"


def digits(value: float) -> str:
    """All digits of a whole number, three significant digits of others."""
    return f"{value:,.0f}" if value == int(value) else _three_digits(value)


def _three_digits(value: float) -> str:
    size = abs(value)
    if size >= 100:
        return f"{value:,.0f}"
    if size >= 10:
        return f"{value:.1f}"
    return f"{value:.2f}" if size >= 1 else f"{value:.3g}"
