"""Work on the state, one piece after the other, in turns with the other tasks of the event loop."""

import asyncio
import time
from collections.abc import Callable, Iterator
from typing import Final

_TURN: Final = 0.004
"""Seconds of work before the other tasks have their turn."""


class Turns:
    """Only one work is done at a time: a batch is added, or the state is rendered, or encoded."""

    def __init__(self) -> None:
        self._lock = asyncio.Lock()

    async def take(self, work: Callable[[], Iterator[None]]) -> None:
        """Does the work, which yields between its pieces."""
        async with self._lock:
            begun = time.perf_counter()
            for _ in work():
                if time.perf_counter() - begun > _TURN:
                    await asyncio.sleep(0)
                    begun = time.perf_counter()
