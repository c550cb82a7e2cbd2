"""Where one step ends and the next begins, and what kind of step it is."""

from collections import deque
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from statistics import median
from typing import Literal

from otel_zernel_processors.phases.intake.intervals import WORK, Mark

StepKind = Literal["training", "accumulation", "evaluation", "between", "unfinished"]
"""`training` has an optimizer's step, `accumulation` only a backward pass, `evaluation` neither. `between` is what lies
between a loop's end and the next batch. `unfinished` was cut off: the process ended, or became too much to hold."""

_LOADS = 31
"""How many loads tell what is usual."""
_UNUSUAL = 4
"""The end of a loader's data takes this many times less than a load, or, with workers to be ended, more."""
_JITTER = 1.25
"""Batches of one loop take as long as the others, or this many times longer."""


@dataclass(slots=True)
class Step:
    """From one batch to the next, with everything its thread did: [start, end) in ns."""

    start: int
    end: int
    kind: StepKind = "unfinished"
    marks: list[Mark] = field(default_factory=list)
    opened_by: Mark | None = None
    """The load whose batch this step works on."""
    loads: int = 0
    """How many loads in a row end the step: more than one at the end of a loader, or with several loaders."""
    ends_epoch: bool = False
    lossy: bool = False
    """Whether events were lost in it: what nothing covers is unknown."""
    trains: bool = False
    """Whether a backward pass or an optimizer ran in it."""
    works_until: int | None = None
    """When (ns) its loop was left, at the latest; None if the loop went on to its next load."""


class StepCutter:
    """Cuts the marks of one training thread, fed in the order of their ends, into steps.

    A step lasts from one DataLoader return to the next. At the end of its data a loader is asked once more, which
    returns nothing; that return looks like any other, so what it was shows only by what follows: a step waits for the
    next one before its kind is known.
    """

    def __init__(self, bridge_ns: int) -> None:
        """Loads less than `bridge_ns` apart, with nothing between them, are one: several loaders, or an end and a
        new beginning."""
        self._bridge_ns = bridge_ns
        self.pending = 0
        """How many marks are held."""
        self._open: Step | None = None
        self._held: Step | None = None
        self._before: Step | None = None
        self._loads: deque[int] = deque(maxlen=_LOADS)

    def feed(self, mark: Mark) -> Iterable[Step]:
        """The steps whose kind is known now that this mark, of the training thread, has been seen."""
        step, loads = self._open, mark.kind == "data_loading"
        if step:
            step.marks.append(mark)
            step.end = mark.end
            self.pending += 1
            if mark.kind in WORK:
                step.trains = True
        if not loads:
            return ()
        self._open = Step(mark.end, mark.end, opened_by=mark)
        if step is None:
            return (Step(mark.start, mark.end, "between", [mark]),)
        if step.opened_by is None:
            self.pending = 0
            return (step,)
        step.loads = 1
        return () if self._continues(step, mark) else self._hold(step)

    def end(self) -> Iterator[Step]:
        """What is left, the last step unfinished."""
        if self._held:
            yield self._known(self._held, self._open)
        if self._open and self._open.end > self._open.start:
            self._open.kind = "unfinished"
            yield self._open
        self._open = self._held = None
        self.pending = 0

    def cut(self) -> Iterator[Step]:
        """What is held, the last step unfinished, as is what comes from there to the next load: the rest of it."""
        rest = self._open and Step(self._open.end, self._open.end)
        yield from self.end()
        self._open = rest

    @property
    def begins(self) -> int | None:
        """When (ns) the first of the steps that are held begins; None if there is none."""
        first = self._held or self._open
        return first.start if first else None

    def _continues(self, step: Step, load: Mark) -> bool:
        """Adds the step to the one before it if it is but the space between two loads."""
        held = self._held
        if held is None or len(step.marks) > 1 or load.start - step.start >= self._bridge_ns:
            return False
        held.end = load.end
        held.marks.append(load)
        held.loads += 1
        return True

    def _hold(self, step: Step) -> Iterator[Step]:
        held, self._held = self._held, step
        if held:
            self.pending -= len(held.marks)
            yield self._known(held, step)

    def _known(self, step: Step, after: Step | None) -> Step:
        step.kind = self._kind(step, after)
        before, self._before = self._before, step
        if step.trains and step.opened_by:
            self._loads.append(step.opened_by.end - step.opened_by.start)
        if step.kind == "between":
            step.ends_epoch = before is not None and before.trains
        elif step.trains:
            step.ends_epoch = step.loads > 1 and before is not None and before.trains and before.loads == 1
        return step

    def _kind(self, step: Step, after: Step | None) -> StepKind:
        if step.trains:
            return "training" if any(mark.kind == "optimizer" for mark in step.marks) else "accumulation"
        if self._begins_with_an_end(step):
            return "between"
        if (after is None or after.trains) and step.loads == 1:
            step.works_until = self._left_early(step)
            return "between" if step.works_until is None else "evaluation"
        return "evaluation"

    def _left_early(self, step: Step) -> int | None:
        """When (ns) the last batch of an evaluation, that this step began with, was done, as long as the one before it;
        None if the step began with the loader's end, or if that cannot be told: with workers, loads and ends take
        anything."""
        before, load = self._before, step.opened_by
        if before is None or before.kind != "evaluation" or not (load and before.opened_by):
            return None
        took, usual = load.end - load.start, before.opened_by.end - before.opened_by.start
        if "MultiProcessing" in load.name or took < max(self._bridge_ns, usual / _UNUSUAL):
            return None
        return step.start + round((before.marks[-1].start - before.start) * _JITTER)

    def _begins_with_an_end(self, step: Step) -> bool:
        """Whether the return that begins this step, the first after training, brought no batch."""
        load = step.opened_by
        if load is None or len(self._loads) < 3 or not (self._before and self._before.trains):
            return False
        usual, took = median(self._loads), load.end - load.start
        return took * _UNUSUAL < usual or ("MultiProcessing" in load.name and took > usual * _UNUSUAL)
