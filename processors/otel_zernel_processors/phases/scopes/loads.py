"""Cuts the intervals of a training thread with a DataLoader into steps, and determines the kind of each step."""

from collections import deque
from collections.abc import Iterable, Iterator, Sequence
from statistics import median

from otel_zernel_processors.phases.intake.intervals import RUNS, SKIPPED, UPDATES, WORK, ThreadInterval
from otel_zernel_processors.phases.scopes.steps import Step, StepKind
from otel_zernel_processors.phases.scopes.units import with_updates

_LOADS = 31
"""The median of this many loads is the usual length of a load."""
_UNUSUAL = 4
"""At the end of its data a loader returns this many times faster than usual. With worker processes, which it then has
to stop, it returns this many times slower."""
_ACCUMULATED = 16
"""So many first batches with a backward pass and without an update show that updates do not show."""
_JITTER = 1.25
"""A batch of a loop takes at most this many times as long as the batch before it."""


class LoadCutter:
    """Cuts the intervals of one training thread, fed in the order of their ends, into steps.

    A step lasts from one DataLoader return to the next. At the end of its data a loader is called once more and returns
    no batch, which looks like any other return. Only the next step shows the difference, so each step is held until the
    next one is complete.
    """

    def __init__(self, bridge_ns: int) -> None:
        """Loads less than `bridge_ns` apart, without an interval between them, count as one load: several loaders, or
        the end of one loop and the start of the next."""
        self._bridge_ns = bridge_ns
        self.pending = 0
        """Number of intervals held."""
        self.backwards = 0
        """Number of backward passes since the last load."""
        self._open: Step | None = None
        self._held: Step | None = None
        self._before: Step | None = None
        self._unsettled: list[Step] | None = []
        """The first steps, as long as no update has been seen; None once it is known whether updates show."""
        self._hides_updates = self._has_optimizer = False
        self._loads: deque[int] = deque(maxlen=_LOADS)

    def feed(self, interval: ThreadInterval) -> Iterable[Step]:
        """Adds an interval of the training thread; returns the steps whose kind it determines."""
        step, kind = self._open, interval.kind
        if step:
            step.intervals.append(interval)
            step.end = interval.end
            self.pending += 1
            if kind in WORK:
                step.trains = True
                self.backwards += kind == "backward"
            elif kind in RUNS:
                step.has_runs = True
        if kind != "data_loading":
            return self._skip(interval) if kind == SKIPPED else ()
        self.backwards = 0
        self._open = Step(interval.end, interval.end, opened_by=interval)
        if step is None:
            return (Step(interval.start, interval.end, "between", [interval]),)
        if step.opened_by is None:
            self.pending = 0
            return (step,)
        step.loads = 1
        return () if self._continues(step, interval) else self._settled(self._hold(step))

    def end(self) -> Iterator[Step]:
        """The remaining steps. The last one is unfinished."""
        if self._held:
            yield from self._settled([self._classified(self._held, self._open)])
        yield from self._unsettled or ()
        self._unsettled = self._unsettled and []
        if self._open and self._open.end > self._open.start:
            self._open.kind = "unfinished"
            yield self._open
        self._open = self._held = None
        self.pending = 0

    def cut(self) -> Iterator[Step]:
        """The steps held so far. The last one is unfinished, and so is the rest of it, up to the next load."""
        rest = self._open and Step(self._open.end, self._open.end)
        yield from self.end()
        self._open = rest

    def _skip(self, skipped: ThreadInterval) -> list[Step]:
        """The steps up to some that have no intervals. The next load ends these."""
        rest, held, self._held = self._open, self._held, None
        steps = list(self._settled([self._classified(held, Step(skipped.start, skipped.start))]) if held else ())
        steps += self._unsettled or ()
        self._unsettled = self._unsettled and []
        if rest and rest.start < skipped.start:
            rest.kind, rest.end = "unfinished", skipped.start
            steps.append(rest)
        self._open = Step(skipped.start, skipped.end, "skipped", [skipped], skipped=skipped.issued)
        self.pending = 1
        return steps

    def count_updates(self) -> int:
        """Number of updates of the weights since the last load."""
        return sum(interval.kind in UPDATES for interval in self._open.intervals) if self._open else 0

    def leave(self) -> tuple[int | None, list[Step], list[ThreadInterval]]:
        """Ends at the last load: its end (ns), the steps before it, and the intervals after it."""
        rest, self._open = self._open, None
        steps = list(self.end())
        return (rest.start, steps, rest.intervals) if rest else (None, steps, [])

    @property
    def begins(self) -> int | None:
        """When (ns) the first held step begins; None without a held step."""
        first = self._held or self._open
        return first.start if first else None

    def _continues(self, step: Step, load: ThreadInterval) -> bool:
        """Appends the step to the one before it if it is only the gap between two loads."""
        held = self._held
        if held is None or len(step.intervals) > 1 or load.start - step.start >= self._bridge_ns:
            return False
        held.end = load.end
        held.intervals.append(load)
        held.loads += 1
        return True

    def _hold(self, step: Step) -> Sequence[Step]:
        held, self._held = self._held, step
        if held is None:
            return ()
        self.pending -= len(held.intervals)
        return (self._classified(held, step),)

    def _settled(self, steps: Sequence[Step]) -> Sequence[Step]:
        """The steps whose kind is known. Steps that only run a backward pass wait: they accumulate gradients, or their
        update does not show, since the optimizer is compiled."""
        if self._unsettled is None:
            return [self._with_hidden_update(step) for step in steps] if self._hides_updates else steps
        settled: list[Step] = []
        for step in steps:
            if self._unsettled is None:
                settled.append(self._with_hidden_update(step))
                continue
            if self._unsettled or step.kind == "accumulation":
                self._unsettled.append(step)
                self.pending += len(step.intervals)
            else:
                settled.append(step)
            accumulated = sum(step.kind == "accumulation" for step in self._unsettled)
            if step.kind == "training" or accumulated >= _ACCUMULATED:
                self._hides_updates = accumulated >= _ACCUMULATED
                settled += map(self._with_hidden_update, self._unsettled)
                self.pending -= sum(len(step.intervals) for step in self._unsettled)
                self._unsettled = None
        return settled

    def _with_hidden_update(self, step: Step) -> Step:
        if self._hides_updates and step.kind == "training":
            self._hides_updates = False
        if self._hides_updates and step.kind == "accumulation":
            step.kind, step.hides_update = "training", True
        return step

    def _classified(self, step: Step, after: Step | None) -> Step:
        """The step with its kind, which the step after it determines."""
        self._has_optimizer = self._has_optimizer or any(interval.kind == "optimizer" for interval in step.intervals)
        step.intervals = with_updates(step.intervals, by_hand=not self._has_optimizer)
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
            return "training" if any(interval.kind in UPDATES for interval in step.intervals) else "accumulation"
        if self._begins_without_batch(step) or self._lacks_passes(step):
            return "between"
        if (after is None or after.trains) and step.loads == 1:
            step.works_until = self._left_early(step)
            return "between" if step.works_until is None else "evaluation"
        return "evaluation"

    def _left_early(self, step: Step) -> int | None:
        """If an evaluation loop was left early in this step: when (ns) its last batch was done, assuming that it took
        as long as the batch before it.

        None if the loader ended normally, or if this is unclear: with worker processes, loads and ends take any time.
        """
        before, load = self._before, step.opened_by
        if before and before.kind == "evaluation" and before.has_runs:
            return max(interval.end for interval in step.intervals if interval.kind in RUNS)
        if before is None or before.kind != "evaluation" or not (load and before.opened_by):
            return None
        lasted, usual = load.end - load.start, before.opened_by.end - before.opened_by.start
        if "MultiProcessing" in load.name or lasted < max(self._bridge_ns, usual / _UNUSUAL):
            return None
        return step.start + round((before.intervals[-1].start - before.start) * _JITTER)

    def _lacks_passes(self, step: Step) -> bool:
        """Whether the passes of this evaluation loop show, and this step has none: it had no batch."""
        before = self._before
        return before is not None and before.kind == "evaluation" and before.has_runs and not step.has_runs

    def _begins_without_batch(self, step: Step) -> bool:
        """Whether the load before this step, the first after training, returned no batch."""
        load = step.opened_by
        if load is None or len(self._loads) < 3 or not (self._before and self._before.trains):
            return False
        usual, lasted = median(self._loads), load.end - load.start
        return lasted * _UNUSUAL < usual or ("MultiProcessing" in load.name and lasted > usual * _UNUSUAL)
