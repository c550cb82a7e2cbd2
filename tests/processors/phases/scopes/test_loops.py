"""Loops of many kinds: the phases of each are its true ones, and its steps are those of the loop."""

import random
from collections import Counter
from collections.abc import Iterable
from itertools import pairwise

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from otel_zernel_processors.phases.scopes.timeline import ClosedStep, Timeline
from tests.processors.phases.scopes.closed_steps import closed
from tests.processors.phases.training import MS, interval_of
from tests.processors.phases.training_loops.loops import LOOPS, accumulation, nanogpt, simulated
from tests.processors.phases.training_loops.loops_without_a_loader import queue
from tests.processors.phases.training_loops.simulated_thread import SimulatedThread, Truth

STEPS: dict[str, dict[tuple[str, str], int]] = {
    "gan": {("training", "optimizer"): 40},
    "wasserstein_gan": {("training", "optimizer"): 12},
    "nanogpt": {("training", "optimizer"): 30, ("inference", "optimizer"): 2},
    "gan_of_two_loaders": {("training", "loader"): 39},
    "accumulation": {("training", "optimizer"): 10},
    "lbfgs": {("training", "loader"): 19},
    "lbfgs_without_a_loader": {("training", "optimizer"): 20},
    "lightning": {("training", "loader"): 19},
    "in_backward": {("training", "loader"): 19},
    "reinforcement": {("training", "optimizer"): 48, ("inference", "optimizer"): 7},
    "keras": {("training", "optimizer"): 20},
    "keras_with_a_loader": {("training", "loader"): 19},
    "queue": {("training", "optimizer"): 30},
    "clears_first": {("training", "optimizer"): 20},
    "short_rollouts": {("training", "optimizer"): 10, ("inference", "optimizer"): 9},
    "copied_batches": {("training", "optimizer"): 30},
    "copied_after_forward": {("training", "optimizer"): 30},
    "unmarked": {("training", "optimizer"): 30},
    "compiled": {("training", "optimizer"): 30},
    "by_backward": {("training", "backward"): 149},
}
"""The steps that a loop has at least, by kind and boundary. With a loader, the last step is unfinished."""


def agreement(steps: Iterable[ClosedStep], truths: Iterable[Truth], thread: int = 1) -> tuple[float, Counter[str]]:
    """The share of the true time whose phase was found, and the ns of each error."""
    segments = [segment for step in steps if step.step.thread == thread for segment in step.attribution.segments]
    right, whole, errors = 0, 0, Counter[str]()
    for phase, start, end in truths:
        whole += end - start
        covered = 0
        for segment in segments:
            both = min(end, segment.end) - max(start, segment.start)
            if both <= 0:
                continue
            covered += both
            right += both if segment.phase == phase else 0
            if segment.phase != phase:
                errors[f"{phase} as {segment.position}"] += both
        if covered < end - start:
            errors[f"{phase} in no step"] += end - start - covered
    return right / whole, errors


def kinds(steps: Iterable[ClosedStep]) -> Counter[tuple[str, str]]:
    return Counter((step.step.kind, step.step.boundary) for step in steps)


@pytest.mark.parametrize("name", LOOPS)
def test_the_phases_of_a_loop_are_its_true_ones(name: str) -> None:
    thread = simulated(name)
    share, errors = agreement(closed(thread.spans), thread.truths)
    assert share >= 0.98, errors


@pytest.mark.parametrize("name", STEPS)
def test_the_steps_are_those_of_the_loop(name: str) -> None:
    counts = kinds(closed(simulated(name).spans))
    assert {key: counts[key] for key in STEPS[name]} == STEPS[name]
    assert sum(count for (kind, _), count in counts.items() if kind in ("training", "accumulation")) == STEPS[name].get(
        ("training", "optimizer"), max(STEPS[name].values())
    )


@pytest.mark.parametrize(
    ("name", "updates"),
    [
        pytest.param("gan", [2] * 40, id="two optimizers"),
        pytest.param("wasserstein_gan", [6] * 12, id="a critic that is updated five times before its generator"),
        pytest.param("delayed_policy", [1, 2] * 15, id="a policy that is updated every second time after its critic"),
    ],
)
def test_updates_that_belong_together_are_one_step(name: str, updates: list[int]) -> None:
    steps = [step.step for step in closed(simulated(name).spans) if step.step.kind == "training"]
    optimizers = [sum(interval.kind == "optimizer" for interval in step.intervals) for step in steps]
    assert optimizers[-len(updates) :] == updates


def test_a_step_of_two_optimizers_begins_with_its_data() -> None:
    steps = [step.step for step in closed(simulated("gan").spans) if step.step.kind == "training"]
    assert len({round((step.end - step.start) / MS, 1) for step in steps}) == 1
    first = steps[0].intervals[0]
    assert first.operators is not None
    assert first.operators.count == 30


@pytest.mark.parametrize(
    ("critics", "left_out", "whole"),
    [(1, "critic", False), (1, "critic", True), (1, "generator", False), (1, "generator", True), (3, "critic", True)],
)
def test_steps_of_a_gan_begin_with_its_critic_after_an_update_was_left_out(
    critics: int, left_out: str, whole: bool
) -> None:
    """The update alone, as with a gradient that is not finite, or its passes, too."""
    thread = SimulatedThread()
    for step in range(60):
        for name in [*["critic"] * critics, "generator"]:
            is_left_out = name == left_out and step in (20, 21, 40)
            if is_left_out and whole:
                continue
            thread.data(3 if name == "critic" else 0.1)
            thread.forward(6, 30 if name == "critic" else 15)
            thread.backward(9)
            if not is_left_out:
                thread.optimizer()
    steps = [one.step for one in closed(thread.spans) if one.step.kind == "training"]
    assert abs(len(steps) - 60) <= 3
    first = [step.intervals[0].operators for step in steps]
    assert sum(operators is not None and operators.count == 30 for operators in first) >= 57 - 3 * (
        left_out == "critic"
    )


def test_steps_of_a_slow_loop_do_not_wait_until_it_has_repeated() -> None:
    thread = SimulatedThread()
    for _ in range(4):
        for operators in (30, 15):
            thread.data(1000)
            thread.forward(1000, operators)
            thread.learn(2000)
    timeline = Timeline(MS // 2, 10_000)
    for interval in filter(None, map(interval_of, thread.spans)):
        timeline.add(interval)
    steps = [step.step for step in timeline.advance(timeline.last_end)]
    assert len([step for step in steps if step.kind == "training"]) == 7


@pytest.mark.parametrize("name", ["queue", "copied_batches", "keras", "clears_first"])
def test_the_first_step_begins_with_its_batch(name: str) -> None:
    thread = simulated(name)
    first = closed(thread.spans)[0]
    (batch,) = [truth for truth in thread.truths if truth[0] == "data_loading"][:1]
    assert abs(first.step.start - thread.truths[0][1]) < 0.5 * MS
    loaded = first.attribution.phase_ns()["data_loading"]
    assert loaded == pytest.approx(batch[2] - batch[1], rel=0.05)


def test_a_collector_that_attaches_within_the_first_pass_adds_no_batch_to_it() -> None:
    thread = SimulatedThread()
    thread.forward(2, 3)  # the rest of a pass
    thread.learn()
    queue(thread)
    assert closed(thread.spans)[0].step.start == thread.spans[0].start_time_unix_nano


def test_a_pass_that_waits_for_results_is_one_step() -> None:
    steps = [step.step for step in closed(simulated("tokens").spans)]
    assert Counter(step.kind for step in steps) == {"inference": 9, "unfinished": 1}


def test_generation_without_training_has_a_step_for_each_call() -> None:
    steps = [step.step for step in closed(simulated("generation").spans)]
    assert {step.kind for step in steps[:-1]} == {"inference"}
    assert len(steps) == 10


def test_a_thread_that_only_loads_for_another_has_no_steps() -> None:
    thread = SimulatedThread()
    queue(thread)
    assert {step.step.thread for step in closed(thread.spans)} == {1}


def test_two_threads_that_train_have_steps_of_their_own() -> None:
    first, second = SimulatedThread(), SimulatedThread(thread=2, now=3)
    nanogpt(first)
    accumulation(second)
    steps = closed([*first.spans, *second.spans])
    for thread in (first, second):
        share, errors = agreement(steps, thread.truths, thread.thread)
        assert share >= 0.98, errors


def test_training_on_a_thread_that_is_not_the_first() -> None:
    first, second = SimulatedThread(), SimulatedThread(thread=2, now=50)
    first.inference(20)
    nanogpt(second)
    steps = closed([*first.spans, *second.spans])
    share, errors = agreement(steps, second.truths, 2)
    assert share >= 0.98, errors


def test_data_that_is_loaded_in_advance_is_no_loader_of_the_training() -> None:
    thread = SimulatedThread()
    for _ in range(10):
        thread.load()
    for _ in range(3):
        accumulation(thread)
        nanogpt(thread)
    steps = closed(thread.spans)
    assert kinds(steps)["training", "optimizer"] == 120
    share, errors = agreement(steps, thread.truths)
    assert share >= 0.97, errors


def test_a_loader_for_the_evaluation_does_not_divide_the_training() -> None:
    thread = SimulatedThread()
    for _ in range(4):
        accumulation(thread)
        for _ in range(5):
            thread.load()
            thread.inference()
    steps = closed(thread.spans)
    assert kinds(steps)["training", "optimizer"] == 40
    assert kinds(steps)["evaluation", "optimizer"] >= 3


def test_a_loader_that_begins_later_divides_the_training_from_then_on() -> None:
    thread = SimulatedThread()
    accumulation(thread)
    LOOPS["lightning"](thread)
    counts = kinds(closed(thread.spans))
    assert counts["training", "loader"] >= 15


def test_a_loop_whose_passes_stop_to_show_is_divided_by_its_loads() -> None:
    thread = SimulatedThread()
    accumulation(thread)  # as before the capture of a CUDA graph
    replays = len(thread.truths)
    for _ in range(30):
        thread.load()
        thread.spend("gpu_compute", 2)
        thread.scope("sync", "gpu_compute", 7)
    steps = closed(thread.spans)
    assert kinds(steps)["evaluation", "loader"] >= 20
    share, errors = agreement(steps, thread.truths[replays + 30 :])  # without the first third of them
    assert share >= 0.98, errors


def test_an_evaluation_whose_passes_do_not_show_does_not_divide_the_training() -> None:
    thread = SimulatedThread()
    for _ in range(3):
        for _ in range(10):
            accumulation(thread)
        for _ in range(30):
            thread.load()
            thread.spend("gpu_compute", 9)
    counts = kinds(closed(thread.spans))
    assert counts["training", "optimizer"] >= 3 * 10 * 10 - 3
    assert counts["training", "loader"] == 0


def test_steps_of_one_thread_follow_each_other() -> None:
    for name in LOOPS:
        steps = [step.step for step in closed(simulated(name).spans) if step.step.thread == 1]
        assert all(before.end == after.start for before, after in pairwise(steps)), name


@settings(deadline=None, max_examples=40)
@given(st.sampled_from(sorted(LOOPS)), st.integers(0, 99))
def test_the_division_into_batches_makes_no_difference(name: str, seed: int) -> None:
    chance = random.Random(seed)
    spans = simulated(name).spans
    intervals = [interval for span in spans if (interval := interval_of(span))]
    chance.shuffle(intervals)
    timeline = Timeline(MS // 2, 10_000)
    steps: list[ClosedStep] = []
    for interval in intervals:
        timeline.add(interval)
    until = min(interval.end for interval in intervals)
    while until < timeline.last_end:
        steps += timeline.advance(until)
        until += chance.randrange(30 * MS)
    steps += timeline.end()
    assert [step.attribution for step in steps] == [step.attribution for step in closed(spans)]


@pytest.mark.parametrize(
    ("operators", "passes"), [(0, [20]), (1, [20]), (7, [20]), (19, [20]), (9, [30, 15]), (15, [30, 15])]
)
def test_a_collector_that_attaches_within_a_step_counts_no_step_for_the_rest(operators: int, passes: list[int]) -> None:
    """The rest begins after a forward pass, or has so many of its operators. Of a step of two updates it is a part of
    the second one, or the whole of it."""
    thread = SimulatedThread()
    if operators:
        thread.forward(operators / 2, operators)
    thread.learn()
    for _ in range(20):
        for count in passes:
            thread.data(5.0 if count == max(passes) else 0.1)
            thread.train(10, count)
    assert [step.step.kind for step in closed(thread.spans)] == ["unfinished", *["training"] * 20]


@pytest.mark.parametrize("marks", [True, False])
def test_a_collector_that_attaches_within_a_step_of_a_loader_counts_no_step_for_the_rest(marks: bool) -> None:
    thread = SimulatedThread(marks=marks)
    thread.learn()
    for _ in range(20):
        thread.load()
        thread.train()
    kinds = Counter(step.step.kind for step in closed(thread.spans))
    assert (kinds["training"], kinds["accumulation"]) == (19, 0)  # the last one is unfinished


def test_a_collector_that_attaches_within_an_accumulation_counts_no_step_for_the_rest() -> None:
    thread = SimulatedThread()
    for passes in [2, *[4] * 10]:
        for _ in range(passes):
            thread.data(1.0)
            thread.forward()
            thread.backward()
        thread.optimizer()
    assert [step.step.kind for step in closed(thread.spans)] == ["unfinished", *["training"] * 10]


@pytest.mark.parametrize("operators", [0, 7])
@pytest.mark.parametrize("marks", [True, False])
def test_a_collector_that_attaches_within_a_step_without_an_update_counts_no_step_for_the_rest(
    operators: int, marks: bool
) -> None:
    thread = SimulatedThread(marks=marks)
    if operators:
        thread.forward(operators / 2, operators)
    thread.backward()
    LOOPS["by_backward"](thread)
    of_backward = [step.step.kind for step in closed(thread.spans) if step.step.boundary == "backward"]
    assert of_backward[:3] == ["unfinished", "training", "training"]
