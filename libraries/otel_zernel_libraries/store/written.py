"""The result of a write."""

from collections import Counter
from dataclasses import dataclass, field


@dataclass(slots=True)
class Written:
    """The points and spans of one batch, by their fate."""

    stored: int = 0
    repeated: int = 0
    """The store had the same point already, with the same value."""
    conflicting: int = 0
    """The store had a point of the same series and time with another value, which stays."""
    dropped: Counter[str] = field(default_factory=Counter)
    """Points that the store does not take, by the reason: `too_old`, `too_far_ahead`, `time_out_of_range` or
    `too_many_partitions`."""

    def add(self, given: int, stored: int, conflicting: int) -> None:
        """Counts the rows of one table."""
        self.stored += stored
        self.conflicting += conflicting
        self.repeated += given - stored - conflicting
