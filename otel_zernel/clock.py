"""The time, as a parameter: tests pass a clock of their own."""

import asyncio
import time
from typing import Protocol


class Clock(Protocol):
    """The source of time for every component."""

    def time_ns(self) -> int:
        """Wall-clock time in ns since 1970."""

    def monotonic(self) -> float:
        """Seconds on a clock that never goes backwards."""

    async def sleep(self, seconds: float) -> None:
        """Returns after `seconds`. The event loop runs meanwhile."""


class SystemClock:
    """The clock of the operating system."""

    def time_ns(self) -> int:
        return time.time_ns()

    def monotonic(self) -> float:
        return time.monotonic()

    async def sleep(self, seconds: float) -> None:
        await asyncio.sleep(seconds)
