"""Readers of answers without an end: each is sent what is new, and nobody waits for a slow one."""

import asyncio
from collections.abc import Callable, Coroutine, Iterator
from typing import Any, Final

from otel_zernel.clock import Clock
from otel_zernel.runtime.tasks import run_until
from otel_zernel_libraries.serving.api.answers import client_gone

_GROUP: Final = 25
"""Readers that are woken at once. Sending to 100 takes up to 20 ms."""
_STALLED: Final = 5.0
"""Seconds. A reader that leaves while it has read nothing for so long counts as slow."""


class Reader:
    """One reader."""

    def __init__(self) -> None:
        self.wake = asyncio.Event()
        """Set while there is something new for it."""
        self.sends_since: float | None = None
        """The time (monotonic, s) since which a send waits for the reader."""


class Readers:
    """All readers of an answer."""

    def __init__(self, clock: Clock, slow: Callable[[], None]) -> None:
        """`slow` is called for each reader that leaves because it reads too slowly."""
        self._clock = clock
        self._slow = slow
        self._readers: dict[Reader, None] = {}
        self.some = asyncio.Event()
        """Set while there are readers."""

    def __len__(self) -> int:
        """The number of readers."""
        return len(self._readers)

    def __iter__(self) -> Iterator[Reader]:
        return iter(self._readers)

    async def wake(self) -> int:
        """Wakes the readers. Returns the number of those that have not sent the news before."""
        behind = 0
        for position, reader in enumerate(list(self._readers), 1):
            behind += reader.wake.is_set()
            reader.wake.set()
            if position % _GROUP == 0:
                await asyncio.sleep(0)
        return behind

    async def serve(self, reader: Reader, sending: Coroutine[Any, Any, None], receive: Any, name: str) -> None:
        """Runs `sending` until it ends or the client disconnects. What the client sends is ignored."""
        self._readers[reader] = None
        self.some.set()
        try:
            await run_until(sending, client_gone(receive), name)
        finally:
            if reader.sends_since is not None and self._clock.monotonic() - reader.sends_since > _STALLED:
                self._slow()
            self._readers.pop(reader, None)
            if not self._readers:
                self.some.clear()

    async def send(self, reader: Reader, send: Any, message: dict[str, Any]) -> None:
        """Sends a message to the client of a reader."""
        reader.sends_since = self._clock.monotonic()
        await send(message)
        reader.sends_since = None
