"""The processes of one host that ended within the last minute: their series end later, late data does not revive them,
and spans that arrive again do not count again."""

from collections import deque
from collections.abc import Iterator

from otel_zernel_processors.phases.emit.staleness import StalenessTracker

LINGER_NS = 60_000_000_000
"""How long the last values of an ended process stay readable, as with the series of the ebpf receiver."""

ProcessKey = tuple[int, str]
"""A pid and its creation time (empty if unknown). A pid may be reused, and may exist in several containers."""


class EndedProcesses:
    """The processes that ended within the last minute, the earliest first."""

    def __init__(self) -> None:
        self._series: deque[tuple[int, StalenessTracker]] = deque()
        self._dead: dict[ProcessKey, int] = {}
        self._processed: dict[ProcessKey, tuple[int, int]] = {}
        """Until when (ns) the spans of a process were processed, and when it was added."""

    def add(self, key: ProcessKey, series: StalenessTracker, now: int, *, dead: bool) -> None:
        """Adds a process that is no longer followed from `now` (ns) on. If it is dead, late data of it, or data with
        only its pid, does not create a process."""
        self._series.append((now, series))
        if dead:
            self._dead |= dict.fromkeys((key, (key[0], "")), now)

    def is_dead(self, key: ProcessKey) -> bool:
        """Whether the process is known to be dead."""
        return key in self._dead

    def set_processed(self, key: ProcessKey, until: int, now: int) -> None:
        """Notes that the spans of a process that ended by `until` (ns) were processed."""
        self._processed |= dict.fromkeys((key, (key[0], "")), (until, now))

    def processed_until(self, key: ProcessKey) -> int:
        """Until when (ns) the spans of a process with this key were processed; 0 if none ended lately."""
        return self._processed.get(key, (0, 0))[0]

    def pop_expired(self, now: int) -> Iterator[StalenessTracker]:
        """Removes the processes that ended a minute before `now` (ns) or earlier; yields their series."""
        self._dead = {key: since for key, since in self._dead.items() if since > now - LINGER_NS}
        self._processed = {key: one for key, one in self._processed.items() if one[1] > now - LINGER_NS}
        while self._series and self._series[0][0] <= now - LINGER_NS:
            yield self._series.popleft()[1]
