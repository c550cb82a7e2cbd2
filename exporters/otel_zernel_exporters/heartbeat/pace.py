"""When heartbeats are due, and how long to wait before the next connection."""

import random
from collections.abc import Callable

SHORTEST, LONGEST = 1.0, 30.0
"""Seconds before the first connection after a failure, and at most."""


class Backoff:
    """The waits between connections: from 1 s, doubling to 30 s. A random share spreads the workers of a cluster."""

    def __init__(self, uniform: Callable[[float, float], float] = random.uniform) -> None:
        self._uniform = uniform
        self._lowest = SHORTEST

    def reset(self) -> None:
        """A heartbeat was answered: the next wait is the shortest again."""
        self._lowest = SHORTEST

    def next(self) -> float:
        """Seconds to wait now."""
        lowest = self._lowest
        self._lowest = min(lowest * 2, LONGEST / 2)
        return self._uniform(lowest, min(lowest * 2, LONGEST))


class HeartbeatPace:
    """The times of heartbeats. Those that were due while no master answered are skipped, and counted."""

    def __init__(
        self, interval: float, jitter: float, now: float, uniform: Callable[[float, float], float] = random.uniform
    ) -> None:
        """`interval` in s, `jitter` its random share, `now` the monotonic time in s: the first heartbeat is due."""
        self._interval = interval
        self._jitter = jitter
        self._uniform = uniform
        self._due = now

    def wait(self, now: float) -> float:
        """Seconds until the next heartbeat is due."""
        return max(self._due - now, 0.0)

    def sent(self, now: float) -> None:
        """A heartbeat was sent now."""
        self._due = now + self._interval * (1 + self._uniform(-self._jitter, self._jitter))

    def skip(self, now: float) -> int:
        """The heartbeats that were due before now, and are not sent any more. The next one is due at once."""
        missed = int(max(now - self._due, 0.0) / self._interval)
        self._due += missed * self._interval
        return missed
