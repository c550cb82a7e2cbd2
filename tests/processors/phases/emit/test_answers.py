"""The latest answer, and for how long it stands."""

import pytest

from otel_zernel_libraries.training.causes import JobAnswer, Unknown
from otel_zernel_processors.phases.emit.answers import ANSWERS_NS, UNKNOWN_NS, LatestAnswer

WINDOW = 6 * ANSWERS_NS
ANSWER = JobAnswer(step=0.1, steps=100, best=0.09)
UNCERTAIN = JobAnswer(step=0.1, steps=100, best=0.1, unknown=Unknown.UNCERTAIN)


@pytest.mark.parametrize("none", [None, UNCERTAIN])
def test_an_answer_is_looked_for_until_there_is_one_and_then_every_few_seconds(none: JobAnswer | None) -> None:
    latest = LatestAnswer(WINDOW)
    latest.add(none, ANSWERS_NS)
    assert latest.is_due(ANSWERS_NS + 1)
    latest.add(ANSWER, 2 * ANSWERS_NS)
    assert not latest.is_due(3 * ANSWERS_NS - 1)
    assert latest.is_due(3 * ANSWERS_NS)


def test_an_answer_on_few_steps_is_looked_for_again_when_there_may_be_twice_as_many() -> None:
    latest = LatestAnswer(WINDOW)
    second = ANSWERS_NS // 10
    for asked, again in ((second, second + 1), (2 * second, 3 * second), (4 * second, 7 * second)):
        latest.add(JobAnswer(step=0.1, steps=20, best=0.09), asked)
        assert not latest.is_due(again - 1)
        assert latest.is_due(again)


def test_an_answer_on_many_gpus_takes_a_twentieth_of_a_core() -> None:
    latest = LatestAnswer(WINDOW)
    latest.add(ANSWER, ANSWERS_NS, segments=20_000)
    seconds_of_cpu = 20_000 * 85e-6
    due = ANSWERS_NS + round(20 * seconds_of_cpu * 1e9)
    assert not latest.is_due(due - 1)
    assert latest.is_due(due)


@pytest.mark.parametrize("none", [None, UNCERTAIN])
def test_an_answer_stands_for_a_window_if_none_follows(none: JobAnswer | None) -> None:
    latest = LatestAnswer(WINDOW)
    latest.add(ANSWER, ANSWERS_NS)
    latest.add(none, ANSWERS_NS + WINDOW)
    assert latest.answer == ANSWER
    latest.add(none, ANSWERS_NS + WINDOW + 1)
    assert latest.answer is none


def test_the_reason_why_there_is_no_answer_stands_until_there_is_one() -> None:
    latest = LatestAnswer(WINDOW)
    latest.add(UNCERTAIN, 1)
    assert latest.answer is UNCERTAIN
    latest.add(ANSWER, 2)
    assert latest.answer is ANSWER


def test_only_a_longer_wait_for_causes_is_told_and_its_reason_not_too_often() -> None:
    latest = LatestAnswer(WINDOW)
    assert latest.add(None, 1) is None
    for now in (1, ANSWERS_NS, UNKNOWN_NS):
        assert latest.add(UNCERTAIN, now) is None
        assert not latest.is_told
    assert latest.add(UNCERTAIN, 1 + UNKNOWN_NS) is UNCERTAIN
    assert latest.is_told
    assert latest.add(UNCERTAIN, 2 * UNKNOWN_NS) is None
    assert latest.add(UNCERTAIN, 1 + 2 * UNKNOWN_NS) is UNCERTAIN
    assert latest.add(ANSWER, 2 + 2 * UNKNOWN_NS) is ANSWER


def test_the_last_answer_is_told() -> None:
    latest = LatestAnswer(WINDOW)
    assert latest.add(UNCERTAIN, 1) is None
    assert latest.add(UNCERTAIN, 1, is_last=True) is UNCERTAIN
    assert latest.is_told


def test_an_older_answer_that_stands_is_not_told_again() -> None:
    latest = LatestAnswer(WINDOW)
    assert latest.add(ANSWER, 1) is ANSWER
    assert latest.add(UNCERTAIN, 2 + UNKNOWN_NS) is None
    assert latest.is_told
