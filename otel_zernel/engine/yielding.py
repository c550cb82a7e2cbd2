"""Letting others have the event loop in the middle of long work that must not be left half done."""

import asyncio
import time
from types import TracebackType
from typing import Self

LONGEST = 0.005
"""Seconds of work after which others get a turn."""


class Turns:
    """Entered around the work, which calls `give` often. A cancellation that comes meanwhile waits for its end."""

    def __init__(self) -> None:
        self._since = time.perf_counter()
        self._cancelled: asyncio.CancelledError | None = None

    async def give(self) -> None:
        """Gives the others a turn if it is time."""
        if self._cancelled or time.perf_counter() - self._since < LONGEST:
            return
        try:
            await asyncio.sleep(0)
        except asyncio.CancelledError as cancelled:
            self._cancelled = cancelled
        self._since = time.perf_counter()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        if self._cancelled and error is None:
            raise self._cancelled
