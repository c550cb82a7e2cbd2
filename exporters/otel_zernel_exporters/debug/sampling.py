"""Which batches are shown when there are many a second."""

from dataclasses import dataclass
from math import floor


@dataclass(slots=True)
class BatchSampler:
    """Takes the first `initial` of every second, then every `thereafter`-th, or none if that is 0."""

    initial: int
    thereafter: int
    _second: int = -1
    _seen: int = 0

    def takes(self, now: float) -> bool:
        """Whether to take the next one; `now` in seconds."""
        if floor(now) != self._second:
            self._second, self._seen = floor(now), 0
        self._seen += 1
        rest = self._seen - self.initial
        return rest <= 0 or (self.thereafter > 0 and rest % self.thereafter == 0)
