"""The part of a step that its job needs: when its ranks met, and a rank's phases since they met before."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import NamedTuple

from otel_zernel_libraries.training.ledger import Activity, Phase
from otel_zernel_processors.phases.scopes.attribution import add_phases
from otel_zernel_processors.phases.scopes.timeline import ClosedStep

_ISSUED_BY = frozenset({"data_loading", "optimizer"})
"""The kinds of intervals that may have the number of c10d's collectives."""


class CollectiveNumber(NamedTuple):
    """A collective, named the same on all ranks that take part. Sorts by the communicator's size, then by number."""

    size: int
    """The number of ranks of its communicator; 0 if unknown."""
    sequence: int
    """Counted from the creation of the communicator. The first is 1."""
    communicator: str
    """The id that all ranks of the communicator share; empty if unknown."""


def first_number(closed: ClosedStep) -> CollectiveNumber | None:
    """The first collective of a step on its largest communicator; None if no collective has a number.

    Of several communicators of that size, the one with the highest number counts. Numbers only grow, so the result is
    never the same for two steps, and all ranks choose the same one.
    """
    first: dict[tuple[int, str, str], int] = {}
    """By communicator: its size, the id that its ranks share, and its address in the process."""
    for collective in closed.collectives:
        if (call := collective.collective) and call.sequence > 0:
            communicator = call.world_size, call.shared_communicator, call.communicator
            first[communicator] = min(call.sequence, first.get(communicator, call.sequence))
    return max((CollectiveNumber(key[0], sequence, key[1]) for key, sequence in first.items()), default=None)


def issued_by_end(closed: ClosedStep) -> int:
    """The number of the latest c10d collective that the process had issued by the end of the step; 0 if unknown.

    Only spans that every step of every rank has carry it. A wait has a span only if it was long.
    """
    return next((interval.issued for interval in reversed(closed.step.intervals) if interval.kind in _ISSUED_BY), 0)


COLLECTIVE = Phase.NCCL_COLLECTIVE
"""The phase in which a rank waits for the others."""
_LOWER = 8
"""After so many steps in a row with lower numbers, they are those of a new group."""


@dataclass(slots=True)
class RankStep:
    """One step of one rank. Its ranks meet when they leave the step's last collective."""

    number: int
    """The number of the step in its process, from 1."""
    start: int
    """ns since 1970."""
    end: int
    collective: CollectiveNumber | None = None
    """The number of its first collective on the largest communicator; None if it is unknown."""
    met: int = 0
    """When (ns) its last wait for a collective ended; 0 if it waits for none."""
    meeting: int = 0
    """The number of this meeting in its process, from 1; 0 if it has none."""
    path: Mapping[str, int] = field(default_factory=dict)
    """The time (ns) in each phase from the meeting before to this one. Empty if the step has none, or if events were
    lost in between."""

    @property
    def duration_ns(self) -> int:
        """The duration of the step."""
        return self.end - self.start


class RankSteps:
    """Describes the steps of one process, in order."""

    def __init__(self) -> None:
        self._steps = self._meetings = 0
        self._since: dict[str, int] = {}
        """The time (ns) in each phase since the latest meeting."""
        self._is_lossy = False
        """Whether it is not known, since events were lost."""
        self._issued = self._lower = 0
        """The number of the latest c10d collective before the step, and the steps in a row with a lower number."""

    def next(self, closed: ClosedStep, *, is_rank: bool = True) -> RankStep:
        """Describes the next step. `is_rank`: whether the process is one of several ranks. Else it meets none."""
        self._steps += 1
        step = RankStep(self._steps, closed.step.start, closed.step.end)
        if is_rank:
            step.collective = self._first_number(closed)
            self._meet(step, closed)
        else:
            self._is_lossy = True
        return step

    def skip(self, count: int) -> int:
        """Numbers so many steps that nothing else is known about; returns the number of the first one."""
        first, self._steps = self._steps + 1, self._steps + count
        self._is_lossy = True
        return first

    def _meet(self, step: RankStep, closed: ClosedStep) -> None:
        """Adds the time of the step to its path, up to its last wait for a collective."""
        segments, spent = closed.attribution.segments, self._since
        last = next((at for at in range(len(segments) - 1, -1, -1) if segments[at].activity is Activity.COLLECTIVE), -1)
        self._is_lossy |= closed.step.lossy
        add_phases(spent, segments[: last + 1])
        if last >= 0:
            self._meetings += 1
            step.met, step.meeting = segments[last].end, self._meetings
            step.path = {} if self._is_lossy else spent
            self._is_lossy = closed.step.lossy
            self._since = spent = {}
        add_phases(spent, segments[last + 1 :])

    def _first_number(self, closed: ClosedStep) -> CollectiveNumber | None:
        """The number of the step's first collective: on NCCL's largest communicator, or else of c10d's largest group.

        Two groups may be equally large. Then one of them must not repeat the numbers of the other.
        """
        before, issued = self._issued, issued_by_end(closed)
        if 0 < issued < before and self._lower < _LOWER:
            self._lower += 1
            return first_number(closed)
        self._issued, self._lower = issued, 0
        c10d = CollectiveNumber(0, before + 1, "") if 0 < before < issued else None
        return first_number(closed) or c10d
