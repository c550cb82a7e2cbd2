"""Waiting before a new connection: 1 s, doubling to 30 s, and 1 s again after a good message."""

import random

_FIRST, _MOST = 1.0, 30.0


class ReconnectWait:
    """Times between attempts (s)."""

    def __init__(self) -> None:
        self._next = _FIRST

    def reset(self) -> None:
        """A good message has come."""
        self._next = _FIRST

    def take(self) -> float:
        """The next time, 10 % more or less, so that many readers do not come back at once."""
        wait, self._next = self._next, min(self._next * 2, _MOST)
        return wait * random.uniform(0.9, 1.1)  # noqa: S311  # no secret
