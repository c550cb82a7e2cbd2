"""Whether an exporter makes progress. A full queue may delay its source only as long as it does."""

from collections.abc import Callable

LONGEST_PAUSE = 5.0
"""Seconds without a settled batch after which a busy exporter counts as stuck."""


class Progress:
    """The outcomes of an exporter's attempts."""

    def __init__(self, consumers: int, now: Callable[[], float]) -> None:
        """`now` is a monotonic clock in seconds."""
        self.on_failure: Callable[[], None] = lambda: None
        """Called after each failed attempt."""
        self._consumers = consumers
        self._now = now
        self._failures = 0
        """Failed attempts since the last settled batch."""
        self._busy = 0
        """Batches that are being sent."""
        self._since = 0.0
        """When the last batch was settled, or when the exporter became busy after that."""
        self._draining = False
        self._rounds = 0
        """Failed attempts since `drain`, with no batch settled meanwhile."""

    @property
    def is_stuck(self) -> bool:
        """Whether it fails for all of its consumers, or has settled no batch for `LONGEST_PAUSE`."""
        hangs = self._busy > 0 and self._now() - self._since > LONGEST_PAUSE
        return hangs or self._failures >= self._consumers

    @property
    def is_hopeless(self) -> bool:
        """Whether every consumer has failed once more since `drain`, and no batch was settled meanwhile."""
        return self._draining and self._rounds >= max(self._busy, 1)

    def drain(self) -> None:
        """The collector stops: from here on, `is_hopeless` counts."""
        self._draining = True
        self._rounds = 0

    def begun(self) -> None:
        """A batch is being sent."""
        if not self._busy:
            self._since = self._now()
        self._busy += 1

    def failed(self) -> None:
        """An attempt failed and will be repeated."""
        self._failures += 1
        self._rounds += 1
        self.on_failure()

    def settled(self) -> None:
        """A batch is delivered, or rejected for good: the exporter answers."""
        self._failures, self._rounds, self._since = 0, 0, self._now()

    def ended(self) -> None:
        """A batch is no longer being sent."""
        self._busy -= 1
