"""The division of a thread's time on the CPU among operators, Python and other libraries, by samples.

A step has about one sample, so the samples of a position are added up over steps.
"""

from collections.abc import Sequence
from typing import Final

from otel_zernel_libraries.training.ledger.moments import Activity, Position
from otel_zernel_libraries.training.ledger.snapshots import SAMPLED

_ENOUGH: Final = 10
"""Fewer samples divide no time. A segment with so many of its own needs no others: it may be a rare one."""
_MOST: Final = 200
"""A sum of samples decays so that it stays below this: a program changes."""
_ACTIVITIES: Final = tuple(filter(None, SAMPLED))


class CpuShares:
    """The samples of one thread, by its position."""

    def __init__(self) -> None:
        self._samples: dict[Position, list[float]] = {}

    def divide(self, position: Position, time: int, samples: Sequence[int]) -> dict[Activity, int] | None:
        """Divides the time (ns) on the CPU of a segment with these samples, by `SAMPLED`; None if they are too few."""
        counts = self._enough(position, samples[1:])
        if counts is None:
            return None
        total = sum(counts)
        times = {activity: int(time * count / total) for activity, count in zip(_ACTIVITIES, counts, strict=True)}
        times[max(times, key=times.__getitem__)] += time - sum(times.values())
        return {activity: spent for activity, spent in times.items() if spent}

    def _enough(self, position: Position, samples: Sequence[int]) -> Sequence[float] | None:
        count = sum(samples)
        if count >= _ENOUGH:
            return samples
        summed = self._samples.get(position) or [0.0] * len(_ACTIVITIES)
        if count:
            kept = 1 - count / _MOST
            summed = [before * kept + after for before, after in zip(summed, samples, strict=True)]
            self._samples[position] = summed
        return summed if sum(summed) >= _ENOUGH else None
