"""Finds a first step that compiles: it lasts many times as long as those after it."""

from statistics import median
from typing import Final, Generic, TypeVar

from otel_zernel_processors.phases.scopes.steps import Step

_LONGEST: Final = 20
"""A first step that lasts at least this many times the median"""
_STEPS: Final = 5
"""of so many steps after it compiles."""
_SHORTEST_NS: Final = 1_000_000_000
"""A shorter first step compiles nothing."""
_TRAINS: Final = ("training", "accumulation")
Held = TypeVar("Held")


class FirstSteps(Generic[Held]):
    """Holds the first step of one thread, and the steps after it, until it is known whether it compiles."""

    def __init__(self) -> None:
        self._held: list[tuple[Step, Held]] = []
        self._is_known = False

    def add(self, step: Step, held: Held) -> list[Held]:
        """Adds the next step, and what is held with it; returns what is not held any more."""
        if self._is_known:
            return [held]
        if not self._held and not (step.kind in _TRAINS and step.end - step.start >= _SHORTEST_NS):
            self._is_known = step.kind in _TRAINS
            return [held]
        self._held.append((step, held))
        first, *others = (one for one, _ in self._held)
        lasted = first.end - first.start
        after = [one.end - one.start for one in others if one.kind in _TRAINS]
        if len(after) < _STEPS and step.end - first.end < lasted:
            return []
        first.compiles = len(after) >= _STEPS and lasted >= _LONGEST * median(after[:_STEPS])
        return self.end()

    def end(self) -> list[Held]:
        """All that is held."""
        held, self._held, self._is_known = self._held, [], True
        return [one for _, one in held]
