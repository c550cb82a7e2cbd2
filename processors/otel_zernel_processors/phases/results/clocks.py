"""How far the clocks of a GPU are below the highest ones, and why."""

from collections import deque
from typing import Final

from otel_zernel_libraries.training import semconv
from otel_zernel_processors.phases.intake.inputs import InputPoint

_REASONS: Final = frozenset({"hw_slowdown", "sw_thermal_slowdown", "hw_thermal_slowdown", "hw_power_brake"})
"""Reasons that somebody can remove. A GPU that computes all the time meets its power limit."""
_MOST: Final = 64
"""Readings that are kept."""


class GpuClocks:
    """The latest readings of one GPU."""

    def __init__(self) -> None:
        self._limit = 0.0
        self._parts: deque[float] = deque(maxlen=_MOST)
        self._active: dict[str, deque[float]] = {}

    def read(self, point: InputPoint) -> None:
        """Adds a point of the clock of its cores, of its limit, or of a reason that lowers it."""
        if point.name == semconv.GPU_CLOCK_LIMIT:
            self._limit = point.value
        elif point.name == semconv.GPU_CLOCK and self._limit > 0:
            self._parts.append(min(max(point.value / self._limit, 0.0), 1.0))
        elif point.name == semconv.GPU_THROTTLE_ACTIVE and point.state in _REASONS:
            self._active.setdefault(point.state, deque(maxlen=_MOST)).append(float(point.value > 0))

    @property
    def mean(self) -> float:
        """The clock by the highest one, 0 to 1. 1 if it is not known."""
        return sum(self._parts) / len(self._parts) if self._parts else 1.0

    @property
    def lowered(self) -> dict[str, float]:
        """By reason: the part of the readings in which it lowered the clocks, if any."""
        means = {reason: sum(active) / len(active) for reason, active in self._active.items()}
        return {reason: mean for reason, mean in means.items() if mean}
