"""Processes that are followed no more: their series end a while later, and who is dead does not come back."""

from collections import deque
from collections.abc import Iterator

from otel_zernel_processors.phases.emit.staleness import Told

LINGER_NS = 60_000_000_000
"""How long the last values of a process can be read before its series end, as with those of the ebpf receiver."""

Key = tuple[int, str]
"""A pid and its creation time: a pid may come back, and may exist in several containers."""


class Departed:
    """The processes of one host that went within the last minute, the earliest first."""

    def __init__(self) -> None:
        self._told: deque[tuple[int, Told]] = deque()
        self._dead: dict[Key, int] = {}

    def add(self, key: Key, told: Told, now: int, *, dead: bool) -> None:
        """Takes a process that is followed no more from `now` (ns) on. If it is dead, what is still said of it, and of
        its pid by who does not say which process that is, makes no new one."""
        self._told.append((now, told))
        if dead:
            self._dead |= dict.fromkeys((key, (key[0], "")), now)

    def is_dead(self, key: Key) -> bool:
        """Whether it is known to have ended."""
        return key in self._dead

    def forget(self, now: int) -> Iterator[Told]:
        """What was told of those that went long enough before `now` (ns)."""
        self._dead = {key: since for key, since in self._dead.items() if since > now - LINGER_NS}
        while self._told and self._told[0][0] <= now - LINGER_NS:
            yield self._told.popleft()[1]
