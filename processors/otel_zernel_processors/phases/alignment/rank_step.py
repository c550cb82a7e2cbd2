"""The part of a step that its job needs: when its ranks met, and a rank's phases since they met before."""

from collections import Counter
from dataclasses import dataclass, field

from otel_zernel_processors.phases.alignment.sequences import CollectiveNumber, first_number, issued_by_end
from otel_zernel_processors.phases.scopes.timeline import ClosedStep

COLLECTIVE = "nccl_collective"
"""The phase in which a rank waits for the others."""


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
    path: Counter[str] = field(default_factory=Counter)
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
        self._since: Counter[str] = Counter()
        """The time (ns) in each phase since the latest meeting."""
        self._issued = 0
        """The number of c10d collectives that were issued before the step."""
        self._is_lossy = False
        """Whether events were lost since then."""

    def next(self, closed: ClosedStep) -> RankStep:
        """Describes the next step."""
        self._steps += 1
        step = RankStep(self._steps, closed.step.start, closed.step.end, self._first_number(closed))
        step.met = max((one.end for one in closed.attribution.segments if one.phase == COLLECTIVE), default=0)
        before, after = _split(closed, step.met)
        self._since += before
        self._is_lossy |= closed.step.lossy
        if step.met:
            self._meetings += 1
            step.meeting = self._meetings
            step.path = Counter() if self._is_lossy else self._since
            self._since, self._is_lossy = after, closed.step.lossy
        return step

    def _first_number(self, closed: ClosedStep) -> CollectiveNumber | None:
        """The number of the step's first collective: on NCCL's largest communicator, or else of all of c10d's."""
        before, issued = self._issued, issued_by_end(closed)
        self._issued = issued
        c10d = CollectiveNumber(0, before + 1, "") if 0 < before < issued else None
        return first_number(closed) or c10d


def _split(closed: ClosedStep, met: int) -> tuple[Counter[str], Counter[str]]:
    """The time in each phase until the meeting and since then. All of it is before if there is no meeting."""
    before, after = Counter[str](), Counter[str]()
    for segment in closed.attribution.segments:
        part = after if 0 < met <= segment.start else before
        part[segment.phase] += segment.end - segment.start
    return before, after
