"""The readers of the feed: each message is encoded once for all, and nobody waits for a slow one."""

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any, Final

from otel_zernel.clock import Clock
from otel_zernel.runtime.tasks import run_until

_GROUP: Final = 25
"""Readers that are woken at once. Sending to 100 took up to 20 ms."""
_FRESH: Final = 0.1
"""Seconds for which a message is the first one of further readers."""
_STALLED: Final = 5.0
"""Seconds. A reader that leaves while it has read nothing for so long counts as slow."""


class FeedReader:
    """One reader."""

    def __init__(self) -> None:
        self.wake = asyncio.Event()
        """Set while there is a message for it."""
        self.sends_since: float | None = None
        """The time (monotonic, s) since which a send waits for the reader."""


class FeedReaders:
    """All readers, and the message of the moment."""

    def __init__(
        self,
        render: Callable[[], Awaitable[str]],
        clock: Clock,
        interval: float,
        *,
        slow: Callable[[], None],
        skipped: Callable[[], None],
    ) -> None:
        """`render` makes a message. `slow` is called for each reader that is dropped because it reads too slowly, and
        `skipped` for each message that a reader does not get.
        """
        self._render = render
        self._clock = clock
        self._interval = interval
        self._slow = slow
        self._skipped = skipped
        self._readers: dict[FeedReader, None] = {}
        self._has_readers = asyncio.Event()
        self._text = ""
        self._number = 0
        """Of messages that were made."""
        self._rendered_at = -_FRESH
        self._rendering = asyncio.Lock()

    def __len__(self) -> int:
        """The number of readers."""
        return len(self._readers)

    async def run(self) -> None:
        """Pushes messages while there are readers."""
        while True:
            await self._has_readers.wait()
            await self._clock.sleep(self._interval)
            if self._readers:
                await self.push()

    async def push(self) -> None:
        """Makes a message, and wakes the readers."""
        await self._refresh()
        for position, reader in enumerate(list(self._readers), 1):
            if reader.wake.is_set():
                self._skipped()  # it gets the newest message in place of the one before
            reader.wake.set()
            if position % _GROUP == 0:
                await asyncio.sleep(0)

    async def serve(self, receive: Any, send: Any) -> None:
        """Sends messages on a WebSocket until it is closed. What the reader sends is ignored."""
        reader = FeedReader()
        self._readers[reader] = None
        self._has_readers.set()
        try:
            await run_until(self._send_all(reader, send), _gone(receive), "feed")
        finally:
            if reader.sends_since is not None and self._clock.monotonic() - reader.sends_since > _STALLED:
                self._slow()
            self._readers.pop(reader, None)
            if not self._readers:
                self._has_readers.clear()

    async def _send_all(self, reader: FeedReader, send: Any) -> None:
        """Sends the newest message at once, and then each time when there is a newer one."""
        if not self._text or self._clock.monotonic() - self._rendered_at >= _FRESH:
            await self._refresh()
        while True:
            reader.wake.clear()
            reader.sends_since = self._clock.monotonic()
            await send({"type": "websocket.send", "text": self._text})
            reader.sends_since = None
            await reader.wake.wait()

    async def _refresh(self) -> None:
        """Makes a message, unless another task has made one while this one waited."""
        number = self._number
        async with self._rendering:
            if self._number == number:
                self._text = await self._render()
                self._rendered_at = self._clock.monotonic()
                self._number += 1


async def _gone(receive: Any) -> None:
    while (await receive())["type"] != "websocket.disconnect":
        pass
