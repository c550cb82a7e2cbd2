"""The contract of a source of live states."""

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
