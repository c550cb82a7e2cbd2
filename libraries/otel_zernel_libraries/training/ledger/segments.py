"""A part of a step in one position, with what its thread did there; and what happens how often in a step."""

from operator import itemgetter
from typing import Final, NamedTuple, Self

from otel_zernel_libraries.training.ledger.moments import MOMENTS, Activity, Moment, Phase, Position


class Work(NamedTuple):
    """What a thread did in a segment, by the counters of its snapshots. Times are ns since 1970."""

    operators: int
    launches: int
    first_launch: int
    """0 without one."""
    last_launch: int
    """0 without one."""
    collectives: int
    """Collectives that the process issued."""
    copies: int
    """Copies between host and device."""
    copied: int
    """Bytes of these copies."""
    read: int
    """Bytes that system calls read, or received from sockets."""
    file_faults: int
    minor_faults: int
    major_faults: int
    written: int = 0
    """Bytes that system calls wrote, or sent to sockets."""
    writing: int = 0
    """Time (ns) off the CPU in system calls that write."""
    forks: int = 0
    """Processes that the thread started."""
    blocked: int = 0
    """Time (ns) in which launches of autograd's threads were blocked. `launches` has theirs, too."""
    hits: int = 0
    """Hits of the receiver's probes in the thread."""


NO_WORK = Work(*[0] * len(Work._fields))


class Segment(NamedTuple):
    """A part of a step in one position of its thread: [start, end) in ns since 1970."""

    start: int
    end: int
    moment: Moment
    """The position, and the activity that takes most of the time. If that is `collective`, it takes all."""
    times: tuple[tuple[Moment, int], ...] = ()
    """The time (ns) in each activity; their sum is the duration. Empty if it has only the one of `moment`."""
    work: Work | None = None
    """None if the thread has no snapshots around the segment."""

    @property
    def position(self) -> Position:
        return self.moment.position

    @property
    def activity(self) -> Activity:
        return self.moment.activity

    @property
    def phase(self) -> Phase:
        return self.moment.phase

    @property
    def spent(self) -> tuple[tuple[Moment, int], ...]:
        """The time (ns) in each activity, with the position."""
        return self.times or ((self.moment, self.end - self.start),)

    def time_in(self, activity: Activity) -> int:
        """The time (ns) in an activity."""
        return sum(spent for moment, spent in self.spent if moment.activity is activity)

    def with_part(self, activity: Activity, other: Activity, lasted: int) -> Self:
        """The segment with so many ns of an activity in another one."""
        spent = {moment.activity: time for moment, time in self.spent}
        spent[activity] -= lasted
        spent[other] = spent.get(other, 0) + lasted
        moments = MOMENTS[self.position]
        times = tuple((moments[moment], time) for moment, time in spent.items() if time)
        longest = max(times, key=itemgetter(1))[0]
        return self._replace(moment=longest, times=times if len(times) > 1 else ())


SMALL: Final = 65_536
"""Bytes of the largest small collective: latency decides how long it takes."""


OPERATIONS: Final = frozenset(
    {
        *("all_reduce", "reduce_scatter", "all_gather", "broadcast", "reduce", "send", "receive"),
        *("all_to_all", "gather", "scatter", "barrier"),
    }
)
"""The names of collectives that are kept apart. A sender of spans may name others at will."""


class StepEvent(NamedTuple):
    """Something that happens in steps."""

    name: str
    """`batch`: one that the training thread made itself. `worker_batch`: one from worker processes. `iterator`: one of
    a DataLoader with workers. `worker_start`: a process that it started for an iterator. `backward`. `optimizer`.
    `inference`: a run of operators without gradients. `collective`."""
    position: str = ""
    """Of a collective: the position of the training thread when it began; else empty."""
    operation: str = ""
    """Of a collective: one of `OPERATIONS`, or `other`; empty if it is not known."""
    size: str = ""
    """Of a collective: `small` up to 64 KiB, else `large`; empty if it is not known."""


def collective_event(position: Position, operation: str, size: int) -> StepEvent:
    """The event of a collective with so many bytes."""
    known = operation if operation in OPERATIONS else "other"
    return StepEvent("collective", position, known, "small" if size <= SMALL else "large")
