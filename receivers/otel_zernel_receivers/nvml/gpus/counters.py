"""The driver's counters, as sums that only grow."""

from dataclasses import dataclass
from math import inf


@dataclass(slots=True)
class DriverCounter:
    """One counter, continued after wrap-around and restarted after a reload of the driver."""

    raw: float = -inf
    """The last number that the driver returned."""
    read_ns: int = 0
    """The time at which it was read, in ns since 1970."""
    offset: float = 0.0
    start_ns: int = 0
    """The start time of the sum, in ns since 1970; 0 (unknown) until the first reload."""

    def update(self, raw: float, wraps_at: float, now_ns: int) -> float:
        """Returns the sum, after the driver has returned `raw`.

        A lower number than before is a wrap-around if the number fell from the upper half of its range to the lower.
        The range ends at `wraps_at`; 0 means that the counter never wraps. Otherwise the driver has reset the counter.
        """
        if raw < self.raw:
            if wraps_at and raw < wraps_at / 2 <= self.raw:
                self.offset += wraps_at
            else:
                self.offset = 0.0
                self.start_ns = self.read_ns
        self.raw = raw
        self.read_ns = now_ns
        return self.offset + raw
