"""The attribution of an interval of time, in milliseconds."""

from collections.abc import Iterable

from otel_zernel_libraries.training.ledger import Activity, Segment
from otel_zernel_processors.phases.intake.intervals import ThreadInterval
from otel_zernel_processors.phases.scopes.attribution import attribute
from otel_zernel_processors.phases.scopes.steps import Step, StepKind

US = 1000
WAITS = (Activity.COLLECTIVE, Activity.GPU_WAIT)
BRIDGE = 500 * US

Row = tuple[str, int, int]
"""A position or a wait; its start and its end in us."""


def interval(kind: str, start: int, end: int, name: str = "", *, in_flight: bool = False) -> ThreadInterval:
    return ThreadInterval(end * US, start * US, 1, kind, name or kind, in_flight)


def attributed(
    intervals: list[ThreadInterval], flights: list[tuple[int, int]] | None = None, **step: object
) -> list[Row]:
    """The segments of a step of 30 ms, in us."""
    kind: StepKind = step.get("kind", "training")  # type: ignore[assignment]  # the tests pass kinds
    losses = [(0, 30_000 * US)] if step.get("lossy") else []
    whole = Step(0, 30_000 * US, kind, intervals, losses=losses, trains=True)
    attribution = attribute(whole, [(start * US, end * US) for start, end in flights or []], BRIDGE)
    return rows_of(attribution.segments)


def rows_of(segments: Iterable[Segment]) -> list[Row]:
    """Each segment with the name of its span."""
    return [
        (str(one.activity if one.activity in WAITS else one.position), one.start // US, one.end // US)
        for one in segments
    ]


LOAD = interval("data_loading", 25_000, 30_000)
BACKWARD = interval("backward", 10_000, 18_000)
OPTIMIZER = interval("optimizer", 20_000, 23_000)
WAIT = "c10d::Work::wait"
