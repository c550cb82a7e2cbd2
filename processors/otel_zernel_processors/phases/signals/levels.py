"""The level of a gauge, which is valid for a limited time."""

import math

_FIRST_NS = 60_000_000_000
"""How long the first value is valid: receivers read at least once a minute by default."""
_LONGEST_NS = 300_000_000_000
_READINGS = 3
"""A value is valid for this many times the time between the last two values."""


class Level:
    """The latest value of a series. Without new values it is unknown: a receiver may not report an idle GPU at all."""

    def __init__(self) -> None:
        self._value: float | None = None
        self._time = 0
        self._valid_ns = _FIRST_NS

    def set(self, time: int, value: float) -> None:
        """Adds a value of the time `time` (ns). NaN ends the series: the level is unknown from then on."""
        if time < self._time:
            return
        if self._time and time > self._time:
            self._valid_ns = min(_READINGS * (time - self._time), _LONGEST_NS)
        self._time, self._value = time, None if math.isnan(value) else value

    def at(self, now: int) -> float | None:
        """The level at `now` (ns); None if it is unknown."""
        return self._value if now <= self._time + self._valid_ns else None
