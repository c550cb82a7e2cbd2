"""The time, as something that is handed in: tests hand in one of their own."""

import asyncio
import time
from typing import Protocol


class Clock(Protocol):
    """Where components take the time from."""

    def time_ns(self) -> int:
        """Wall-clock time, ns since 1970."""

    def monotonic(self) -> float:
        """Seconds on a clock that never goes backwards."""

    async def sleep(self, seconds: float) -> None:
        """Returns after `seconds`; the event loop runs meanwhile."""


class SystemClock:
    """The machine's clock."""

    def time_ns(self) -> int:
        return time.time_ns()

    def monotonic(self) -> float:
        return time.monotonic()

    async def sleep(self, seconds: float) -> None:
        await asyncio.sleep(seconds)
