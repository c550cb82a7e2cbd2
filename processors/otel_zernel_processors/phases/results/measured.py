"""The measured steps of one process and the facts about it: what its causes follow from."""

from otel_zernel_libraries.training import TRAINED
from otel_zernel_libraries.training.causes import (
    Facts,
    Job,
    JobAnswer,
    MeasuredSteps,
    RankInput,
    StepFlags,
    answer_on,
    training_ends,
)
from otel_zernel_processors.phases.scopes.timeline import ClosedStep


class MeasuredProcess:
    """Measures the steps of the first thread of a process that trains."""

    def __init__(self, window: int) -> None:
        """`window`: the time (ns) for which steps are kept."""
        self.steps = MeasuredSteps(window)
        self._optimizer = ""
        self._has_loader = False

    def add(self, closed: ClosedStep, number: int, met: int) -> None:
        """Adds the next step. `number`: its number in its process. `met`: when (ns) its last wait for a collective
        ended; 0 without one."""
        step, flags = closed.step, 0
        for flag, is_set in (
            (StepFlags.TRAINED, step.kind in TRAINED),
            (StepFlags.UPDATED, step.kind == "training"),
            (StepFlags.EVALUATION, step.kind == "evaluation"),
            (StepFlags.LOSSY, step.lossy),
            (StepFlags.ENDS_EPOCH, step.ends_epoch),
        ):
            flags |= flag if is_set else 0
        self.steps.add((step.start, step.end), closed.attribution.segments, closed.events, flags, number, met)
        if not self._optimizer or not self._has_loader:
            self._name(closed)

    def input(self, rank: int | None) -> RankInput:
        """The process as a rank of its job; None if it trains alone."""
        return RankInput(rank, self.steps, Facts(optimizer=self._optimizer, has_loader=self._has_loader))

    def answer(self, expected: int = 1, rank: int | None = None) -> JobAnswer | None:
        """The answer on the process alone, of a job with so many ranks. None before it has taken a few steps."""
        ends = training_ends(self.steps)
        return answer_on(Job([self.input(rank)], ends, expected)) if len(ends) > 1 else None

    def _name(self, closed: ClosedStep) -> None:
        for one in closed.step.intervals:
            if one.kind == "optimizer":
                self._optimizer = one.name.removeprefix("Optimizer.step#").partition(".")[0]
            self._has_loader |= one.kind == "data_loading" and "DataLoader" in one.name
