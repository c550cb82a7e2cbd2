"""Counters as the driver keeps them, made into sums that only grow."""

from dataclasses import dataclass
from math import inf


@dataclass(slots=True)
class Counter:
    """One counter across wrap-around and reloads of the driver."""

    raw: float = -inf
    seen_ns: int = 0
    """When it was last read."""
    offset: float = 0.0
    start_ns: int = 0
    """Since when it counts; 0 while that is unknown, as it is until a first reload."""

    def read(self, raw: float, wraps_at: float, now_ns: int) -> float:
        """The sum, if the driver says `raw`.

        Less than before means that it wrapped, if it was in the upper half of its range (`wraps_at`, 0 for too wide
        to wrap) and now is in the lower; else that it began anew.
        """
        if raw < self.raw:
            if wraps_at and raw < wraps_at / 2 <= self.raw:
                self.offset += wraps_at
            else:
                self.offset, self.start_ns = 0.0, self.seen_ns
        self.raw, self.seen_ns = raw, now_ns
        return self.offset + raw
