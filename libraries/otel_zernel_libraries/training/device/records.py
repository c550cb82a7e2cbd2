"""What a device did by its own records: those of CUPTI say when each kernel and copy ran.

Times are ns since 1970.
"""

from collections.abc import Sequence
from typing import Final

import numpy as np

from otel_zernel_libraries.training.device.segments import Segment
from otel_zernel_libraries.training.device.streams import NS, Floats

_WHOLE: Final = 255
_MOST: Final = 20_000
"""Periods that are kept: four minutes of those of the ebpf receiver."""


class DeviceRecords:
    """The busy time of the devices of one process, in periods of equal parts."""

    def __init__(self) -> None:
        self._periods: dict[tuple[int, int], Floats] = {}
        self.since = self.until = 0
        """From when on and until when all busy time is known; 0 without records."""

    def add(self, start: int, end: int, busy: bytes) -> None:
        """Adds busy time: each byte is the busy part of its part of the period, 255 for all of it."""
        parts = np.frombuffer(busy, np.uint8).astype(float) * ((end - start) / len(busy) / _WHOLE)
        known = self._periods.get((start, end))
        if known is not None and len(known) == len(parts):
            parts += known
        self._periods[start, end] = parts
        self.since = min(self.since or start, start)
        self.until = max(self.until, end)
        if len(self._periods) > _MOST:
            self.forget(sorted(end for _, end in self._periods)[_MOST // 2])

    def forget(self, before: int) -> None:
        """Removes the periods that ended before this time."""
        self._periods = {period: parts for period, parts in self._periods.items() if period[1] >= before}
        self.since = self.since and max(self.since, before)

    def covers(self, segments: Sequence[Segment]) -> bool:
        """Whether there are records before and after these segments. Between two records, the device is idle."""
        return 0 < self.since <= segments[0].begin and self.until >= segments[-1].end

    def idle(self, segments: Sequence[Segment]) -> Floats:
        """The seconds of each segment in which the device had nothing to do."""
        origin = segments[0].begin
        bounds = np.array([(segment.begin - origin, segment.end - origin) for segment in segments], float)
        begins, ends = self._busy_until(origin, bounds[:, 0]), self._busy_until(origin, bounds[:, 1])
        lengths = bounds[:, 1] - bounds[:, 0]
        idle: Floats = (lengths - np.clip(ends - begins, 0.0, lengths)) * NS
        return idle

    def _busy_until(self, origin: int, times: Floats) -> Floats:
        """The busy time (ns) from the first record to each of these times (ns since `origin`)."""
        periods = sorted(self._periods.items())
        first = min([self.since, *(start for (start, _), _ in periods[:1])])
        edges, sums = [np.array([first - origin], float)], [np.zeros(1)]
        for (start, end), parts in periods:
            width = (end - start) / len(parts)
            edges.append(start - origin + width * np.arange(len(parts) + 1))
            sums.append(np.concatenate(([0.0], np.minimum(parts, width).cumsum())) + sums[-1][-1])
        # periods of one receiver do not overlap
        busy: Floats = np.interp(times, np.maximum.accumulate(np.concatenate(edges)), np.concatenate(sums))
        return busy
