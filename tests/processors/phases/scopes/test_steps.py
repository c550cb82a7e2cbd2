"""The edges and the kinds of steps."""

from collections.abc import Iterable

import pytest

from otel_zernel_processors.phases.scopes.steps import Step
from tests.processors.phases.scopes.closed_steps import closed
from tests.processors.phases.training import MS, START, Loop

WORKERS = "enumerate(DataLoader)#_MultiProcessingDataLoaderIter.__next__"


def cut(loop: Loop) -> list[Step]:
    """The steps after the loop's first load."""
    return [one.step for one in closed(loop.spans)][1:]


def kinds(steps: Iterable[Step]) -> str:
    """The first letters of the steps' kinds: training, accumulation, evaluation, between, unfinished."""
    return "".join(step.kind[0] for step in steps)


def end_of_data(loop: Loop) -> Loop:
    """The loader returns once more, without a batch."""
    return loop.load(0.03)


def evaluated(loop: Loop, batches: int = 3, forward: float = 6.0) -> Loop:
    for _ in range(batches):
        loop.load(3).wait(forward)
    return end_of_data(loop)


def test_a_step_lasts_from_one_return_to_the_next() -> None:
    steps = cut(Loop().steps(3, tail=2).load())
    assert [(step.start - START, step.end - START) for step in steps] == [
        (at * MS, (at + 34) * MS) for at in (5, 39, 73)
    ]


def test_accumulation_has_a_backward_pass_and_no_optimizer() -> None:
    loop = Loop()
    for _ in range(3):
        for _ in range(3):
            loop.load().wait(10).do("backward", 12)
        loop.load().train()
    assert kinds(cut(loop.load())) == "aaat" * 3


def test_evaluation_within_an_epoch_differs_from_its_end() -> None:
    loop = Loop().steps(5)
    evaluated(loop).wait(1)
    assert kinds(cut(loop.steps(5).load())) == "ttttt" + "eee" + "b" + "ttttt"


def test_evaluation_that_ends_at_the_next_load_has_no_step_between() -> None:
    loop = Loop().steps(5)
    evaluated(loop).wait(0.1)
    assert kinds(cut(loop.steps(5).load())) == "ttttt" + "eee" + "ttttt"


def test_the_end_of_an_epoch_is_between() -> None:
    steps = cut(end_of_data(Loop().steps(5)).wait(400).steps(5).load())
    assert kinds(steps) == "tttttbttttt"
    assert [step.ends_epoch for step in steps].index(True) == 5
    assert steps[5].end - steps[5].start == 405 * MS


def test_an_epoch_that_is_followed_at_once_by_the_next_ends() -> None:
    steps = cut(end_of_data(Loop().steps(5)).wait(0.2).steps(5).load())
    assert kinds(steps) == "t" * 10
    assert [index for index, step in enumerate(steps) if step.ends_epoch] == [4]


def test_an_evaluation_after_the_end_of_an_epoch() -> None:
    loop = end_of_data(Loop().steps(5)).wait(100)
    steps = cut(evaluated(loop).wait(20).steps(5).load())
    assert kinds(steps) == "ttttt" + "b" + "eee" + "b" + "ttttt"
    assert [index for index, step in enumerate(steps) if step.ends_epoch] == [5]


def test_a_long_load_that_stops_workers_returns_no_batch() -> None:
    loop = Loop()
    for _ in range(5):
        loop.do("data_loading", 0.3, name=WORKERS).train()
    loop.do("data_loading", 40, name=WORKERS).wait(100)
    assert kinds(cut(evaluated(loop).wait(20).steps(5).load())) == "ttttt" + "b" + "eee" + "b" + "ttttt"


def test_several_loaders_make_one_step() -> None:
    loop = Loop()
    for _ in range(6):
        loop.load(3).wait(0.1).load(2).train()
    steps = cut(loop.load(3).wait(0.1).load(2))
    assert kinds(steps) == "b" + "t" * 6  # the first load is not known to be the first loader's
    assert not any(step.ends_epoch for step in steps)


def test_an_evaluation_that_is_left_early_is_an_evaluation_to_its_end() -> None:
    loop = Loop().steps(5).load(3).wait(6).load(3).wait(6).load(3).wait(7)
    steps = closed(loop.steps(5).load().spans)[1:]
    assert kinds(step.step for step in steps) == "ttttt" + "eee" + "ttttt"
    assert [segment.position for segment in steps[7].attribution.segments] == ["evaluation", "load"]


def test_time_after_an_evaluation_that_was_left_early_is_unknown() -> None:
    loop = Loop().steps(5).load(3).wait(6).load(3).wait(6 + 300)
    segments = closed(loop.steps(5).spans)[7].attribution.segments
    lengths = [(segment.position, round((segment.end - segment.start) / MS, 3)) for segment in segments]
    assert lengths == [("evaluation", 7.5), ("after_step", 298.5), ("load", 5)]


@pytest.mark.parametrize("batch", ["the only one", "from workers"])
def test_an_evaluation_whose_early_end_is_unclear_ends_in_a_step_between(batch: str) -> None:
    loop = Loop().steps(5)
    if batch == "from workers":
        loop.do("data_loading", 3, name=WORKERS).wait(6)
    loop.do("data_loading", 3, name=WORKERS if batch == "from workers" else "").wait(6)
    evaluated = "e" if batch == "from workers" else ""
    assert kinds(cut(loop.steps(5).load())) == "ttttt" + evaluated + "b" + "ttttt"


def test_a_checkpoint_after_the_optimizer_is_unknown_time_of_its_step() -> None:
    slow = closed(Loop().steps(2).steps(1, tail=300).load().spans)[-1]
    unknown = [segment.end - segment.start for segment in slow.attribution.segments if segment.phase == "unknown"]
    assert unknown == [300 * MS]


def test_the_last_step_of_a_process_that_dies_is_unfinished() -> None:
    steps = cut(Loop().steps(2).load().wait(10).do("backward", 12))
    assert kinds(steps) == "ttu"


def test_an_evaluation_at_the_end_of_a_process_is_an_evaluation() -> None:
    assert kinds(cut(evaluated(Loop().steps(5)).wait(50))) == "ttttt" + "eee"


def test_without_a_loader_an_optimizer_ends_a_step() -> None:
    steps = [one.step for one in closed(Loop().train().train().spans)]
    assert kinds(steps) == "tt"
    assert {step.boundary for step in steps} == {"optimizer"}


@pytest.mark.parametrize("loads_on", [1, 2])
def test_the_training_thread_is_followed(loads_on: int) -> None:
    loop = Loop(thread=loads_on).load().load()
    loop.thread = 2
    steps = [one.step for one in closed(loop.steps(3).load().spans)]
    assert kinds(steps)[-2:] == "tt"


def passed(loop: Loop, lasts: float) -> Loop:
    """A pass without gradients."""
    return loop.do("operators", lasts, grad=False, operators_count=20, operators_end="region")


def test_the_passes_show_when_an_evaluation_was_left() -> None:
    loop = Loop().steps(5).load(3)
    passed(loop, 6).load(3)
    passed(loop, 6).load(3)
    passed(loop, 6).wait(300)
    steps = closed(loop.steps(5).load().spans)[1:]
    assert kinds(step.step for step in steps) == "ttttt" + "eee" + "ttttt"
    lengths = [
        (segment.phase, round((segment.end - segment.start) / MS, 1)) for segment in steps[7].attribution.segments
    ]
    assert lengths == [("gpu_compute", 6), ("unknown", 300), ("data_loading", 5)]


def test_time_between_two_evaluations_has_no_batch() -> None:
    loop = Loop().steps(5)
    for _ in range(2):
        for _ in range(3):
            passed(loop.load(3), 6)
        end_of_data(loop).wait(50)
    assert kinds(cut(loop.steps(3).load())) == "ttttt" + "eee" + "b" + "eee" + "b" + "ttt"


def test_an_update_whose_passes_were_before_the_collector_attached_is_no_training_step() -> None:
    """The collector attached just before an update of a loop without a loader."""
    loop = Loop().do("optimizer", 0.334).wait(5)
    for _ in range(20):
        loop.do("backward", 20).do("optimizer", 4).wait(5)
    assert kinds(one.step for one in closed(loop.spans)) == "u" + 20 * "t"
