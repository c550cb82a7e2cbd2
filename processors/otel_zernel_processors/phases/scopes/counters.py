"""What the counters of a process, which come with each reading, tell about the time of its threads.

The scheduler counts a thread that a quota stopped as waiting for a CPU: only the counters of its control group tell the
quota from other threads. A hit of the receiver's probes takes time of the process.
"""

from collections import deque
from dataclasses import dataclass
from typing import Final

from otel_zernel_libraries.training.ledger import Activity, Segment
from otel_zernel_processors.phases.intake.inputs import CPU_TAKEN_TIME, PROBE_HITS, PROBE_TIME, InputPoint

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


_READINGS: Final = 256
"""Number of readings that are kept."""


@dataclass(slots=True)
class _Reading:
    """What happened to a process in [start, end) ns. Times are in s."""

    start: int
    end: int
    stopped: float = 0.0
    """Its control group was stopped."""
    taken: float = 0.0
    """Its threads waited for a CPU that had something else to run."""

    @property
    def share(self) -> float:
        """The share of the quota in the waits for a CPU, 0 to 1. While a group is stopped, others may run."""
        return self.stopped / max(self.stopped, self.taken)

    def overlap(self, segment: Segment) -> int:
        return max(min(segment.end, self.end) - max(segment.start, self.start), 0)


class Throttling:
    """For how long quotas stopped the control group of a process, and others took its CPUs."""

    def __init__(self) -> None:
        self._readings: deque[_Reading] = deque(maxlen=_READINGS)
        self._stopped: tuple[int, float] = (0, 0.0)
        """Time (ns) and value of the latest cumulative point."""
        self.is_limited = False
        """Whether a quota has ever stopped it."""

    def add(self, point: InputPoint) -> None:
        """Adds a point of one of both counters, in s."""
        start, value = point.start, point.value
        if point.name == CPU_TAKEN_TIME:
            if point.delta:
                self._reading(start, point.time).taken += value
            return
        if not point.delta:
            (start, before), self._stopped = self._stopped, (point.time, value)
            value -= before
        if start and value > 0:
            self._reading(start, point.time).stopped += value
            self.is_limited = True

    def _reading(self, start: int, end: int) -> _Reading:
        if not self._readings or self._readings[-1].end != end:
            self._readings.append(_Reading(start, end))
        return self._readings[-1]

    def divided(self, segments: list[Segment]) -> list[Segment]:
        """The segments, with the share of the quota in their waits for a CPU."""
        if not self.is_limited or not segments:
            return segments
        first, last = segments[0].start, segments[-1].end
        readings = [
            reading for reading in self._readings if reading.stopped and reading.start < last and first < reading.end
        ]
        return [self._divided(segment, readings) for segment in segments] if readings else segments

    @staticmethod
    def _divided(segment: Segment, readings: list[_Reading]) -> Segment:
        waited = segment.time_in(Activity.CPU_WAIT)
        if not waited:
            return segment
        share = sum(reading.share * reading.overlap(segment) for reading in readings) / (segment.end - segment.start)
        stopped = round(waited * min(share, 1.0))
        return segment.with_part(Activity.CPU_WAIT, Activity.THROTTLED, stopped) if stopped else segment
