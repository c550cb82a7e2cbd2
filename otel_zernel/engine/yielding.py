"""Sharing the event loop during long work that must not be left half done."""

import asyncio
import time
from collections.abc import Coroutine
from types import TracebackType
from typing import Any, Self

LONGEST_SLICE = 0.005
"""Seconds of work after which other tasks run."""


class Yielder:
    """A context around long work, which calls `yield_if_due` often.

    A cancellation during the work is raised when the work is complete.
    """

    def __init__(self) -> None:
        self._slice_start = time.perf_counter()
        self._cancelled: asyncio.CancelledError | None = None

    @property
    def cancelled(self) -> bool:
        """Whether the work may end early, because its context will raise the cancellation."""
        return self._cancelled is not None

    async def yield_if_due(self) -> None:
        """Lets other tasks run if the work has held the event loop for `LONGEST_SLICE`."""
        if self._cancelled or time.perf_counter() - self._slice_start < LONGEST_SLICE:
            return
        try:
            await asyncio.sleep(0)
        except asyncio.CancelledError as cancelled:
            self._cancelled = cancelled
        self._slice_start = time.perf_counter()

    async def complete(self, work: Coroutine[Any, Any, None]) -> None:
        """Waits until the work, which must end soon, has ended. Other tasks run meanwhile."""
        task = asyncio.ensure_future(work)
        while not task.done():
            try:
                await asyncio.wait({task})
            except asyncio.CancelledError as cancelled:
                self._cancelled = cancelled
        self._slice_start = time.perf_counter()
        task.result()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        if self._cancelled and error is None:
            raise self._cancelled
