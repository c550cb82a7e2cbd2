"""The calls to a device in one segment of a thread, and the order of its streams.

Times are ns since 1970.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Final, Self

from otel_zernel_libraries.training import ledger
from otel_zernel_libraries.training.ledger import Activity, Position

QUEUE: Final = 1024
"""Launches that a stream holds before the next launch blocks. NVIDIA's forum (topic 68937) measured 1,000 to 1,024."""
SHORTEST_WAIT: Final = 20_000
"""ns. A wait that lasts longer had to wait for work; the call itself takes a few microseconds."""
SHORTEST_BLOCK: Final = 100_000
"""ns. If launches of a segment were blocked for longer, the queue was full."""
_WAITS: Final = (Activity.GPU_WAIT, Activity.COLLECTIVE)
"""Waits for work that the device does, or for its peers."""


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
    is_known: bool = True
    """Whether its launches are known."""
    meets: bool = False
    """Whether a collective ends it, which all ranks leave together."""

    @property
    def own(self) -> int:
        """The thread's own time: it neither waited for the device nor for room in its queue."""
        return max(self.end - self.begin - self.blocked - self.wait, 0)

    @classmethod
    def of(cls, part: ledger.Segment, drains: frozenset[Stream] = frozenset()) -> Self:
        """The calls in a segment of the ledger. `drains`: the streams whose wait ends it."""
        spent = {moment.activity: time for moment, time in part.spent}
        launches: tuple[Launches, ...] = ()
        if part.work and part.work.launches:
            first = min(max(part.work.first_launch or part.start, part.start), part.end)
            last = max(min(part.work.last_launch or part.end, part.end), first)
            launches = (Launches(part.work.launches, first, last),)
        wait = sum(spent.get(activity, 0) for activity in _WAITS)
        blocked = spent.get(Activity.LAUNCH_BLOCKED, 0) + (part.work.blocked if part.work else 0)
        is_known = part.work is not None
        return cls(part.start, part.end, part.position, launches, blocked, wait, drains, spent, is_known)
