"""Limits the batches that are printed in each second."""

from dataclasses import dataclass
from math import floor


@dataclass(slots=True)
class BatchSampler:
    """Admits the first `initial` batches of every second, then every `thereafter`-th, or none if that is 0."""

    initial: int
    thereafter: int
    _second: int = -1
    _seen: int = 0

    def admits(self, now: float) -> bool:
        """Whether to print the next batch; `now` in seconds."""
        if floor(now) != self._second:
            self._second, self._seen = floor(now), 0
        self._seen += 1
        rest = self._seen - self.initial
        return rest <= 0 or (self.thereafter > 0 and rest % self.thereafter == 0)
