"""What to try against a cause. Each advice has a condition on facts, so that following it can help."""

from collections.abc import Callable
from typing import Final, NamedTuple

from otel_zernel_libraries.training.causes.cause import CauseName
from otel_zernel_libraries.training.causes.facts import Facts
from otel_zernel_libraries.training.ledger import Activity, Position


class Case(NamedTuple):
    """A cause and the facts about the ranks that have it."""

    cause: CauseName
    position: Position | None
    activity: Activity | None
    facts: Facts


class Advice(NamedTuple):
    """A sentence, and when it can help."""

    text: str
    fits: Callable[[Case], bool]


_COMPUTES: Final = frozenset({Activity.PYTHON, Activity.NATIVE, Activity.OPERATOR})
_STORAGE: Final = frozenset({Activity.FILE, Activity.FAULT})


def _in(*positions: Position) -> Callable[[Case], bool]:
    return lambda case: case.cause is CauseName.SEGMENT and case.position in positions


def _loads_itself(case: Case) -> bool:
    return _in(Position.LOAD)(case) and case.facts.has_loader and not case.facts.workers


_ADVICE: Final = (
    Advice(
        "Load batches in worker processes: `DataLoader(..., num_workers=2, persistent_workers=True)`.",
        lambda case: _loads_itself(case) and (case.facts.cpus or 2) > 1,
    ),
    Advice(
        "Do the work of the transform or of the collate function once, before training, and store its result.",
        lambda case: _in(Position.LOAD)(case) and case.activity in _COMPUTES,
    ),
    Advice(
        "Keep the data in memory or on faster storage, or store many samples in one file.",
        lambda case: _in(Position.LOAD)(case) and case.activity in _STORAGE,
    ),
)


def advice_on(case: Case) -> tuple[str, ...]:
    """The sentences that fit, in the order in which to try them."""
    return tuple(advice.text for advice in _ADVICE if advice.fits(case))
