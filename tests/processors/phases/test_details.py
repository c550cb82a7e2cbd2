"""The details of phases and the boundaries of steps in the output."""

import pytest

from tests.processors.phases.processing import in_pieces, last, run
from tests.processors.phases.training import attributes_of, spans_of, values_of
from tests.processors.phases.training_loops.loops import LOOPS, simulated
from tests.processors.phases.training_loops.simulated_thread import SimulatedThread

TRACED = {"sample": 1, "max_steps": 1000}


@pytest.mark.parametrize(
    ("name", "details"),
    [
        ("lightning", {"loader", "forward", "backward", "step", "zero_grad"}),
        ("nanogpt", {"io", "forward", "inference", "backward", "clip", "step", "zero_grad"}),
        ("accumulation", {"queue_wait", "forward", "backward", "step", "zero_grad"}),
        ("reinforcement", {"inference", "host", "forward", "backward", "step"}),
    ],
)
def test_every_phase_has_its_evidence(name: str, details: set[str]) -> None:
    made = run(*in_pieces(simulated(name).spans), traces=TRACED)
    segments = [attributes_of(span.attributes) for span in spans_of(made) if span.parent_span_id]
    assert {segment["zernel.phase.detail"] for segment in segments} == details
    times = {
        (attributes["zernel.phase"], attributes["zernel.phase.detail"]): value
        for attributes, value in values_of(made, "zernel.phase.detail.time")
    }
    assert {detail for _, detail in times} == details
    for phase in {str(phase) for phase, _ in times}:
        whole = last(made, "zernel.phase.time", zernel_phase=phase)
        assert sum(value for (of, _), value in times.items() if of == phase) == pytest.approx(whole)


@pytest.mark.parametrize(
    ("name", "boundary"), [("lightning", "loader"), ("gan", "optimizer"), ("by_backward", "backward")]
)
def test_steps_name_their_boundary_and_their_thread(name: str, boundary: str) -> None:
    made = run(*in_pieces(simulated(name).spans), traces=TRACED)
    steps = [attributes_of(span.attributes) for span in spans_of(made) if not span.parent_span_id]
    training = [step for step in steps if step["zernel.step.kind"] == "training"]
    assert {(one["zernel.step.boundary"], one["thread.id"]) for one in training} == {(boundary, 1)}
    assert last(made, "zernel.steps", zernel_step_kind="training", zernel_step_boundary=boundary) == len(training)


def test_a_process_that_only_infers_has_no_boundary() -> None:
    made = run(*in_pieces(simulated("generation").spans))
    labels = [attributes for attributes, _ in values_of(made, "zernel.steps")]
    assert labels
    assert all("zernel.step.boundary" not in label for label in labels)


def test_the_time_of_two_threads_is_their_sum() -> None:
    one, other = SimulatedThread(), SimulatedThread(thread=2)
    LOOPS["lightning"](one)
    LOOPS["lightning"](other)
    alone = run(*in_pieces(one.spans))
    both = run(*in_pieces([*one.spans, *other.spans]))
    for phase in ("data_loading", "gpu_compute", "optimizer_step"):
        expected = 2 * last(alone, "zernel.phase.time", zernel_phase=phase)
        assert last(both, "zernel.phase.time", zernel_phase=phase) == pytest.approx(expected, rel=0.03)


def test_an_evaluation_within_steps_does_not_make_them_unstable() -> None:
    thread = SimulatedThread()
    for number in range(60):
        for _ in range(20 if number % 20 == 10 else 0):
            thread.inference(30)
        thread.train()
    made = run(*in_pieces(thread.spans))
    assert last(made, "zernel.step.jitter") < 0.1
