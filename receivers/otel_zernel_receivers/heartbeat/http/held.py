"""The messages that clients have not taken yet. Their bytes are bounded for all clients together."""

import asyncio
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from sys import getsizeof


@dataclass(eq=False)
class _Held:
    size: int
    """Bytes of the text, which is the same object for all its clients."""
    timeouts: set[asyncio.Timeout] = field(default_factory=set)
    """One for each client that takes the text."""


class HeldTexts:
    """Counts the texts that clients take. Beyond the bound, the clients with the oldest texts are out of time."""

    def __init__(self, most: int) -> None:
        """`most` is in bytes. A single text may be larger."""
        self._most = most
        self._held: dict[int, _Held] = {}
        """By the identity of the text, the oldest first."""
        self.size = 0
        """Bytes of all texts."""

    @contextmanager
    def until_taken(self, text: str, timeout: asyncio.Timeout) -> Iterator[None]:
        """Counts the text while a client takes it. `timeout` surrounds this block, and ends it early for room."""
        held = self._held.get(id(text))
        if held is None:
            held = self._held[id(text)] = _Held(getsizeof(text))
            self.size += held.size
        held.timeouts.add(timeout)
        self._make_room(held)
        try:
            yield
        finally:
            held.timeouts.remove(timeout)
            if not held.timeouts:
                del self._held[id(text)]
                self.size -= held.size

    def _make_room(self, newest: _Held) -> None:
        beyond = self.size - self._most
        for held in self._held.values():
            if beyond <= 0:
                return
            if held is not newest:
                beyond -= held.size
                for timeout in held.timeouts:
                    if not timeout.expired():
                        timeout.reschedule(0)
