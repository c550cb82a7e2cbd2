"""The calls to a device in one segment of a thread, and the order of its streams.

Times are ns and have one clock.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Final, Self

from otel_zernel_libraries.training.ledger import STATES, Activity, Position, Snapshot

QUEUE: Final = 1024
"""Launches that a stream holds before the next launch blocks. NVIDIA's forum (topic 68937) measured 1,000 to 1,024."""
SHORTEST_WAIT: Final = 20_000
"""ns. A wait that lasts longer had to wait for work; the call itself takes a few microseconds."""
SHORTEST_BLOCK: Final = 100_000
"""ns. If launches of a segment were blocked for longer, the queue was full."""
_COUNTER: Final = 1 << 32
"""Counts of snapshots are modulo this."""


class Stream(StrEnum):
    """A queue of a device. Each runs its work in order, beside the others."""

    COMPUTE = "compute"
    COPY = "copy"
    COLLECTIVE = "collective"


Kind = tuple[Position, Stream]
"""Launches with one position and one stream have the same work."""


@dataclass(frozen=True, slots=True)
class Launches:
    """Work that a segment put into one stream."""

    count: int
    first: int
    """The begin of the first launch."""
    last: int
    """The begin of the last launch."""
    stream: Stream = Stream.COMPUTE


@dataclass(frozen=True, slots=True)
class Segment:
    """A part of a thread's time with one position."""

    begin: int
    end: int
    position: Position
    launches: tuple[Launches, ...] = ()
    """At most one for each stream."""
    blocked: int = 0
    """Time in launches that waited for room in the queue."""
    wait: int = 0
    """Time in waits for the device."""
    drains: frozenset[Stream] = frozenset()
    """The streams that are empty at `end`, because a wait for them ends the segment."""
    activities: Mapping[Activity, int] = field(default_factory=dict)
    """The time of the thread in each activity."""

    @property
    def own(self) -> int:
        """The thread's own time: it neither waited for the device nor for room in its queue."""
        return max(self.end - self.begin - self.blocked - self.wait, 0)

    @classmethod
    def between(cls, before: Snapshot, after: Snapshot, position: Position, *, is_drained: bool) -> Self:
        """The segment between two marks of a thread. `is_drained`: a wait for the device ends it."""
        spent = {
            state or Activity.UNKNOWN: late - early
            for state, early, late in zip(STATES, before.times, after.times, strict=True)
            if late > early
        }
        count = (after.launches - before.launches) % _COUNTER
        launches = (Launches(count, after.first_launch, after.last_launch),) if count else ()
        wait = spent.get(Activity.GPU_WAIT, 0)
        drains = frozenset(Stream) if is_drained else frozenset[Stream]()
        blocked = spent.get(Activity.LAUNCH_BLOCKED, 0)
        return cls(before.time, after.time, position, launches, blocked, wait, drains, spent)
