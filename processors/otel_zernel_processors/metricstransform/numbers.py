"""Changes to the values of data points."""

import math
from typing import Any

_LARGEST, _SMALLEST = 2**63 - 1, -(2**63)


def toggle_type(point: Any) -> None:
    """Makes a double of an integer, and an integer of a double by cutting its fraction. Other points stay."""
    match _kind(point):
        case "as_int":
            point.as_double = float(point.as_int)
        case "as_double":
            point.as_int = to_integer(point.as_double)


def scale(point: Any, factor: float) -> None:
    """Multiplies a number, or the sum, the extremes and the bounds of a histogram with explicit bounds."""
    match _kind(point):
        case "as_int":
            point.as_int = to_integer(point.as_int * factor)
        case "as_double":
            point.as_double *= factor
        case "histogram" if factor > 0:
            for name in ("sum", "min", "max"):
                if point.HasField(name):
                    setattr(point, name, getattr(point, name) * factor)
            bounds = [bound * factor for bound in point.explicit_bounds]
            del point.explicit_bounds[:]
            point.explicit_bounds.extend(bounds)


def _kind(point: Any) -> str | None:
    """`as_int`, `as_double`, `histogram`, or None for other points."""
    if hasattr(point, "as_double"):
        kind: str | None = point.WhichOneof("value")
        return kind
    return "histogram" if hasattr(point, "explicit_bounds") else None


def to_integer(value: float) -> int:
    """The integer without the fraction, within 64 bits; 0 for NaN."""
    if math.isnan(value):
        return 0
    return int(max(_SMALLEST, min(value, _LARGEST))) if math.isfinite(value) else _LARGEST if value > 0 else _SMALLEST
