"""Limits the log lines about something that repeats: the first at once, then one in each interval, with the number."""

from collections.abc import Callable, Hashable
from typing import Final

INTERVAL: Final = 60.0
"""Seconds between two lines about the same thing."""
_MOST_KEYS: Final = 50
"""Things that are counted each by itself. Beyond, all others are one."""


class Repeated:
    """Decides when a repeated event is logged, and how many events the line stands for."""

    def __init__(self, now: Callable[[], float], interval: float = INTERVAL) -> None:
        """`now` is a monotonic clock in seconds."""
        self._now = now
        self._interval = interval
        self._unreported = 0
        self._next = float("-inf")

    def add(self, count: int = 1) -> int:
        """The number since the last line, these included; 0 if no line is due."""
        self._unreported += count
        if self._now() < self._next:
            return 0
        due, self._unreported = self._unreported, 0
        self._next = self._now() + self._interval
        return due


class RepeatedByKey:
    """A `Repeated` for each key. The number of keys is bounded, since keys may contain foreign strings."""

    def __init__(self, now: Callable[[], float]) -> None:
        """As `Repeated`."""
        self._now = now
        self._by_key: dict[Hashable, Repeated] = {}
        self._others = Repeated(now)

    def add(self, key: Hashable, count: int = 1) -> int:
        """The number for this key since its last line, these included; 0 if no line is due."""
        if key not in self._by_key and len(self._by_key) >= _MOST_KEYS:
            return self._others.add(count)
        return self._by_key.setdefault(key, Repeated(self._now)).add(count)


def more(count: int) -> str:
    """The end of a line that stands for `count` events: ` (37 times since the last line)`. Empty for one."""
    return f" ({count:,} times since the last line)" if count > 1 else ""
