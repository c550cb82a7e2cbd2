"""The attribution of an interval of time, in milliseconds."""

from collections.abc import Iterable

from otel_zernel_libraries.training.ledger import Activity, Segment
from otel_zernel_processors.phases.intake.intervals import ThreadInterval
from otel_zernel_processors.phases.scopes.attribution import attribute
from otel_zernel_processors.phases.scopes.steps import Step, StepKind
from tests.processors.phases.training import MS

WAITS = (Activity.COLLECTIVE, Activity.GPU_WAIT)
BRIDGE = MS // 2
US = 1000


def interval(kind: str, start: float, end: float, name: str = "", *, in_flight: bool = False) -> ThreadInterval:
    return ThreadInterval(round(end * MS), round(start * MS), 1, kind, name or kind, in_flight)


def attributed(
    intervals: list[ThreadInterval], flights: list[tuple[float, float]] | None = None, **step: object
) -> str:
    """The segments of a step of 30 ms."""
    kind: StepKind = step.get("kind", "training")  # type: ignore[assignment]  # the tests pass kinds
    losses = [(0, 30 * MS)] if step.get("lossy") else []
    whole = Step(0, 30 * MS, kind, intervals, losses=losses, trains=True)
    times = [(round(start * MS), round(end * MS)) for start, end in flights or []]
    return text_of(attribute(whole, times, BRIDGE).segments)


def text_of(segments: Iterable[Segment]) -> str:
    """The wait or the position of each segment, and its end. It begins where the one before ends."""
    return ", ".join(
        f"{segment.activity if segment.activity in WAITS else segment.position} {segment.end // US / 1000:g}"
        for segment in segments
    )


LOAD = interval("data_loading", 25, 30)
BACKWARD = interval("backward", 10, 18)
OPTIMIZER = interval("optimizer", 20, 23)
WAIT = "c10d::Work::wait"
