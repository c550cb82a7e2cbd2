"""The contract of a source of live states, and the waits of those that connect again."""

import random
import time
from abc import ABC, abstractmethod
from typing import Any


class WatchSource(ABC):
    """Follows a state while `run` runs."""

    def __init__(self, title: str) -> None:
        self.title = title
        """For the first line of the screen."""
        self.trouble = ""
        """A sentence while there is no connection; else empty."""
        self.gpu_notes: tuple[str, ...] = ()
        """What cannot be seen of GPUs and why, a sentence each."""

    @abstractmethod
    async def run(self, *, once: bool = False) -> None:
        """Follows until it is cancelled, or until there is nothing more to follow. With `once`, returns as soon as
        the state is worth showing. Raises `CannotStart` if there is nothing to follow."""

    @abstractmethod
    def state(self) -> dict[str, Any] | None:
        """The newest state, which later calls may change in place; None before the first."""

    def now_ms(self) -> float:
        """Now, by the clock of the source (Unix time, ms)."""
        return time.time() * 1000


_FIRST, _MOST = 1.0, 30.0
"""Seconds."""


class ReconnectWait:
    """Times before a new connection: 1 s, doubling to 30 s, and 1 s again after a good message."""

    def __init__(self) -> None:
        self._next = _FIRST

    def reset(self) -> None:
        """A good message has come."""
        self._next = _FIRST

    def take(self) -> float:
        """The next time, 10 % more or less, so that many readers do not come back at once."""
        wait, self._next = self._next, min(self._next * 2, _MOST)
        return wait * random.uniform(0.9, 1.1)  # noqa: S311  # no secret
