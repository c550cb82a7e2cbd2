"""The critical path: from meeting to meeting, through the rank that waits least."""

from otel_zernel_processors.phases.alignment.rank_step import RankSteps
from otel_zernel_processors.phases.intake.intervals import ThreadInterval
from otel_zernel_processors.phases.scopes.steps import Step
from otel_zernel_processors.phases.scopes.timeline import ClosedStep


def closed(start: int, *parts: tuple[str, int], lossy: bool = False) -> ClosedStep:
    """A training step of these parts: kind and duration (ns)."""
    intervals, at = [], start
    for kind, lasts in parts:
        name = "c10d::Work::wait" if kind == "sync" else kind
        intervals.append(ThreadInterval(at + lasts, at, 1, kind, name))
        at += lasts
    losses = [(start, at)] if lossy else []
    return ClosedStep(Step(start, at, "training", intervals, losses=losses, trains=True), [], [], 0)


def test_a_path_has_the_load_that_the_process_counts_as_the_end_of_the_step_before() -> None:
    steps = RankSteps()
    steps.next(closed(0, ("backward", 30), ("sync", 10), ("optimizer", 5), ("data_loading", 50)))
    second = steps.next(closed(95, ("backward", 30), ("sync", 2), ("optimizer", 5), ("data_loading", 4)))
    assert second.met == 127
    assert second.path == {"optimizer_step": 5, "data_loading": 50, "gpu_compute": 30, "nccl_collective": 2}


def test_a_path_has_the_passes_without_a_collective_before_it() -> None:
    steps = RankSteps()
    steps.next(closed(0, ("backward", 30), ("sync", 10), ("data_loading", 1)))
    between = steps.next(closed(41, ("backward", 7), ("data_loading", 1)))
    second = steps.next(closed(49, ("backward", 30), ("sync", 2), ("data_loading", 1)))
    assert (between.met, between.meeting, between.path) == (0, 0, {})
    assert second.meeting == 2
    assert second.path == {"data_loading": 2, "gpu_compute": 37, "nccl_collective": 2}


def test_a_step_with_lost_events_and_the_one_after_it_have_no_path() -> None:
    steps = RankSteps()
    parts = (("backward", 30), ("sync", 10), ("data_loading", 1))
    paths = [steps.next(closed(41 * at, *parts, lossy=at == 1)).path for at in range(4)]
    assert [bool(path) for path in paths] == [True, False, False, True]
