"""The order in which workers changed, so that a reader gets only the later changes."""

from collections import OrderedDict, deque
from collections.abc import Container
from typing import Final

_TOMBSTONES: Final = 10_000
"""Removed workers that are remembered. A reader that has not seen an older removal gets the whole state."""


class Changes:
    """Sequence numbers of changes by worker. They begin with the time in us: a restart repeats none."""

    def __init__(self, start: int) -> None:
        self.sequence = start
        """The number of the last change."""
        self._floor = start
        """Changes up to this number may be forgotten."""
        self._last: OrderedDict[str, int] = OrderedDict()
        """The last change of each worker, the oldest first."""
        self._removed: deque[str] = deque()

    def note(self, worker_id: str) -> None:
        """The worker has changed."""
        self.sequence += 1
        self._last[worker_id] = self.sequence
        self._last.move_to_end(worker_id)

    def note_removal(self, worker_id: str) -> None:
        """The worker was removed."""
        self.note(worker_id)
        self._removed.append(worker_id)

    def bound(self, known: Container[str]) -> None:
        """Forgets the oldest removals. `known` contains the ids of the present workers."""
        while len(self._removed) > _TOMBSTONES:
            oldest = self._removed.popleft()
            if oldest not in known:
                self._floor = max(self._floor, self._last.pop(oldest, 0))

    def last(self, worker_id: str) -> int:
        """The last change of a worker; 0 if there is none, or if its removal is forgotten."""
        return self._last.get(worker_id, 0)

    def since(self, sequence: int) -> list[str] | None:
        """The workers that changed after this number, the latest first. None if they are not all remembered."""
        if not self._floor <= sequence <= self.sequence:
            return None
        found = []
        for worker_id, last in reversed(self._last.items()):
            if last <= sequence:
                break
            found.append(worker_id)
        return found
