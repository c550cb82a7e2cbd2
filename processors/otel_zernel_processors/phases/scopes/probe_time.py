"""The time that a hit of the receiver's probes takes of a process."""

from typing import Final

from otel_zernel_processors.phases.intake.inputs import PROBE_HITS, PROBE_TIME, InputPoint

_KEPT: Final = 0.98
"""The weight of the readings before, for each new one: a program changes."""


class ProbeTime:
    """The mean time of a hit over the latest readings."""

    def __init__(self) -> None:
        self._sums = {PROBE_HITS: 0.0, PROBE_TIME: 0.0}
        self._totals: dict[str, float] = {}
        """The latest points that are cumulative."""

    def add(self, point: InputPoint) -> None:
        """Adds a point of one of both counters."""
        increase = point.value
        if not point.delta:
            before = self._totals.get(point.name, increase)
            self._totals[point.name] = increase
            increase = max(increase - before, 0.0)
        self._sums[point.name] = self._sums[point.name] * _KEPT + increase

    @property
    def of_hit(self) -> float:
        """ns; 0 if it is not known."""
        hits = self._sums[PROBE_HITS]
        return self._sums[PROBE_TIME] / hits * 1e9 if hits > 0 else 0.0
