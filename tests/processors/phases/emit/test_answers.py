"""The latest answer, and for how long it stands."""

from otel_zernel_libraries.training.causes import JobAnswer
from otel_zernel_processors.phases.emit.answers import ANSWERS_NS, LatestAnswer

WINDOW = 6 * ANSWERS_NS
ANSWER = JobAnswer(step=0.1, steps=100, best=0.09)


def test_an_answer_is_looked_for_until_there_is_one_and_then_every_few_seconds() -> None:
    latest = LatestAnswer(WINDOW)
    latest.add(None, ANSWERS_NS)
    assert latest.is_due(ANSWERS_NS + 1)
    latest.add(ANSWER, 2 * ANSWERS_NS)
    assert not latest.is_due(3 * ANSWERS_NS - 1)
    assert latest.is_due(3 * ANSWERS_NS)


def test_an_answer_on_few_steps_is_soon_looked_for_again() -> None:
    latest = LatestAnswer(WINDOW)
    latest.add(JobAnswer(step=0.1, steps=20, best=0.09), ANSWERS_NS)
    assert latest.is_due(ANSWERS_NS + 1)


def test_an_answer_stands_for_a_window_if_none_follows() -> None:
    latest = LatestAnswer(WINDOW)
    latest.add(ANSWER, ANSWERS_NS)
    latest.add(None, ANSWERS_NS + WINDOW)
    assert latest.answer == ANSWER
    latest.add(None, ANSWERS_NS + WINDOW + 1)
    assert latest.answer is None
