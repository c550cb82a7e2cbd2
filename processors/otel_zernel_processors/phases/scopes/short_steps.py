"""Short steps. Of a job that takes too many, some have no intervals: they are like those before them."""

from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Final, NamedTuple

from otel_zernel_libraries.training.interval_spans import SHORT_STEP_NS
from otel_zernel_libraries.training.ledger import MOMENTS, Activity, Moment, Position, Segment, StepEvent
from otel_zernel_processors.phases.scopes.attribution import Attribution
from otel_zernel_processors.phases.scopes.steps import Boundary, Step, StepKind

_FEWEST, _MOST = 32, 512
"""Steps that are enough, and that are kept at most."""
_UNKNOWN: Final = MOMENTS[Position.UNKNOWN][Activity.UNKNOWN]


class Repeated(NamedTuple):
    """What steps without intervals count as."""

    attribution: Attribution
    """One segment: the order within it is not known."""
    steps: Mapping[tuple[StepKind, Boundary], int]
    events: Mapping[StepEvent, int]
    epochs: int = 0
    durations: Sequence[tuple[StepKind, int, int]] = ()
    """A kind, a duration (ns), and how many steps of that kind lasted so long."""


class ShortSteps:
    """The latest short steps of one thread."""

    def __init__(self) -> None:
        self._spent = Counter[Moment]()
        self._events = Counter[StepEvent]()
        self._boundaries: dict[StepKind, Boundary] = {}
        self._durations: list[tuple[StepKind, int]] = []
        self._epochs = 0
        self._owed: dict[StepEvent | None, float] = {}
        """The parts of counts that are not counted yet: counts are whole. None for epochs."""
        self._is_repeated = False
        """Whether the steps so far have been repeated. Then they give way to newer ones."""

    @staticmethod
    def takes(step: Step) -> bool:
        """Whether a step is short, and whole."""
        is_short = step.end - step.start < SHORT_STEP_NS
        return is_short and not step.losses and step.kind not in ("unfinished", "skipped")

    def add(self, step: Step, attribution: Attribution, events: Mapping[StepEvent, int]) -> None:
        """Adds the next step of the thread that it takes."""
        if len(self._durations) >= (_FEWEST if self._is_repeated else _MOST):
            for of_steps in (self._spent, self._events, self._durations):
                of_steps.clear()
            self._epochs = 0
        self._is_repeated = False
        spent = self._spent
        for start, end, moment, times, _ in attribution.segments:
            for of, lasted in times or ((moment, end - start),):
                spent[of] += lasted
        for event, count in events.items():
            self._events[event] += count
        self._boundaries[step.kind] = step.boundary
        self._durations.append((step.kind, step.end - step.start))
        self._epochs += step.ends_epoch

    def repeated(self, step: Step) -> Repeated:
        """What a step of the kind `skipped` counts as."""
        self._is_repeated = True
        count, skipped = len(self._durations), step.skipped
        if not any(self._spent.values()):
            unknown = Segment(step.start, step.end, _UNKNOWN)
            return Repeated(Attribution([unknown], 0), {("unfinished", step.boundary): skipped}, {})
        durations = [
            (kind, lasted, skipped * (at + 1) // count - skipped * at // count)
            for at, (kind, lasted) in enumerate(self._durations)
        ]
        steps: Counter[tuple[StepKind, Boundary]] = Counter()
        for kind, _, of_kind in durations:
            steps[kind, self._boundaries[kind]] += of_kind
        return Repeated(
            Attribution([_divided(step, self._spent)], 0),
            +steps,
            {event: self._whole(event, number * skipped / count) for event, number in self._events.items()},
            self._whole(None, self._epochs * skipped / count),
            [duration for duration in durations if duration[-1]],
        )

    def _whole(self, key: StepEvent | None, count: float) -> int:
        count += self._owed.get(key, 0.0)
        self._owed[key] = count % 1.0
        return int(count)


def _divided(step: Step, spent: Mapping[Moment, int]) -> Segment:
    """A segment with the time of a step, in the proportions of another time (ns)."""
    lasted, total = step.end - step.start, sum(spent.values())
    longest = max(spent, key=spent.__getitem__)
    parts = {moment: lasted * time // total for moment, time in spent.items()}
    parts[longest] += lasted - sum(parts.values())
    times = tuple((moment, time) for moment, time in parts.items() if time)
    return Segment(step.start, step.end, longest, times if len(times) > 1 else ())
