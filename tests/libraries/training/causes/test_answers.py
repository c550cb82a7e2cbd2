"""The causes of simulated jobs, against the same jobs without them."""

import pytest

from otel_zernel_libraries.training.causes import CauseName, Facts, answer_on
from otel_zernel_libraries.training.ledger import Activity, Position
from tests.libraries.training.causes.simulated import HEALTHY, Part, Plan, simulated, step_of

POINT = 0.01
"""Of a step."""


def test_a_healthy_job_has_no_cause_and_its_best_step_is_near_the_step() -> None:
    answer = answer_on(simulated(Plan(HEALTHY)))
    assert answer
    assert answer.causes == ()
    assert answer.best == pytest.approx(answer.step, rel=0.03)


@pytest.mark.parametrize(
    "planted",
    [
        Part(Position.LOAD, Activity.PYTHON, 0.012),
        Part(Position.FORWARD, Activity.TIMER, 0.010),
        Part(Position.FORWARD, Activity.PYTHON, 0.008),
        Part(Position.AFTER_STEP, Activity.SOCKET, 0.009),
        Part(Position.CLIP, Activity.FILE, 0.02),
    ],
    ids=lambda part: f"{part.position}-{part.activity}",
)
def test_the_gain_of_a_segment_is_that_of_the_job_without_it(planted: Part) -> None:
    plan = Plan((*HEALTHY, planted))
    answer = answer_on(simulated(plan))
    assert answer
    (cause,) = answer.causes
    assert (cause.cause, cause.position, cause.activity) == (CauseName.SEGMENT, planted.position, planted.activity)
    assert cause.gain == pytest.approx(answer.step - step_of(plan.without(planted)), abs=POINT * answer.step)
    assert cause.gain_low <= cause.gain <= cause.gain_high
    assert cause.share == pytest.approx(cause.gain / answer.step)


def test_two_steps_are_too_few_for_an_answer() -> None:
    assert answer_on(simulated(Plan(HEALTHY, steps=3))) is None


def test_workers_are_advised_to_a_loader_without_them_only() -> None:
    slow = Part(Position.LOAD, Activity.PYTHON, 0.03)
    advice = {}
    for workers in (0, 2):
        facts = Facts(has_loader=True, workers=workers, cpus=8)
        answer = answer_on(simulated(Plan((*HEALTHY, slow), facts=facts)))
        assert answer
        advice[workers] = " ".join(answer.causes[0].advice)
    assert "num_workers" in advice[0]
    assert "num_workers" not in advice[2]
