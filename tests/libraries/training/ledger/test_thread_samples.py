"""The samples of a thread over its steps divide its CPU time, and show positions without marks."""

from collections import Counter
from random import Random

import pytest

from otel_zernel_libraries.training.ledger import Activity, Position, ThreadSamples
from otel_zernel_libraries.training.ledger.snapshots import FRAME_POSITIONS, SAMPLED

LOAD, FORWARD = Position.LOAD, Position.FORWARD
MS = 1_000_000
ACTIVITIES = SAMPLED[1:]


def sampled(random: Random, frequency: int, *spent_ms: float) -> list[int]:
    """The samples, by `SAMPLED`, of a segment that spends so much time in each activity, at times that are drawn."""
    samples = [0] * len(SAMPLED)
    at, lasts, every = random.random() * 1000 / frequency, sum(spent_ms), 1000 / frequency
    while at < lasts:
        ends = [sum(spent_ms[: count + 1]) for count in range(len(spent_ms))]
        samples[1 + next(count for count, end in enumerate(ends) if at < end)] += 1
        at += every
    return samples


def test_segments_of_less_than_one_sample_are_divided_by_those_of_many_steps() -> None:
    random, shares, found = Random(1), ThreadSamples(), Counter[Activity]()
    spent = 9.0, 15.0, 6.0
    for _ in range(4000):
        found.update(shares.divide(LOAD, 30 * MS, sampled(random, 19, *spent)) or {})
    for activity, lasts in zip(ACTIVITIES, spent, strict=True):
        assert activity
        assert found[activity] / found.total() == pytest.approx(lasts / 30, abs=0.02)


def test_a_division_is_of_all_the_time() -> None:
    assert ThreadSamples().divide(LOAD, 1001, [9, 4, 4, 2]) == {
        Activity.OPERATOR: 401,
        Activity.PYTHON: 400,
        Activity.NATIVE: 200,
    }


def test_few_samples_divide_nothing() -> None:
    shares = ThreadSamples()
    assert shares.divide(LOAD, MS, [0, 5, 4, 0]) is None
    assert shares.divide(LOAD, MS, [1000, 0, 0, 0]) is None, "the states of calls say what they are"
    assert shares.divide(FORWARD, MS, [0, 1, 0, 0]) is None, "each position has its own samples"
    assert shares.divide(LOAD, MS, [0, 2, 0, 0])


def test_a_long_segment_has_only_its_own_samples() -> None:
    """A log that is written every hundredth step."""
    random, shares = Random(1), ThreadSamples()
    for _ in range(100):
        shares.divide(LOAD, 30 * MS, sampled(random, 19, 30))
    assert shares.divide(LOAD, 3000 * MS, [0, 0, 0, 57]) == {Activity.NATIVE: 3000 * MS}
    assert shares.divide(LOAD, 30 * MS, [0, 0, 0, 0]) == {Activity.OPERATOR: 30 * MS}


def test_a_program_that_changes_is_followed() -> None:
    random, shares = Random(1), ThreadSamples()
    for spent in ((30, 0, 0), (0, 0, 30)):
        for _ in range(2000):
            divided = shares.divide(LOAD, 30 * MS, sampled(random, 19, *spent))
    assert divided
    assert divided[Activity.NATIVE] > 29 * MS


AFTER_STEP = Position.AFTER_STEP
SAMPLE = 52_632
"""us that a sample stands for, at 19 a second."""


@pytest.mark.parametrize("position", FRAME_POSITIONS[1:])
def test_most_of_a_long_segment_shows_its_position(position: Position) -> None:
    number = FRAME_POSITIONS.index(position)
    most, half = ([0] * len(FRAME_POSITIONS) for _ in range(2))
    most[0], most[number] = 2 * SAMPLE, 3 * SAMPLE
    half[0], half[number] = 3 * SAMPLE, 3 * SAMPLE
    samples = ThreadSamples()
    assert samples.position(AFTER_STEP, 5 * SAMPLE, most) is position
    assert samples.position(AFTER_STEP, 6 * SAMPLE, half) is AFTER_STEP
    assert samples.position(AFTER_STEP, 21 * SAMPLE, most) is AFTER_STEP, "most of the time is not known"


def test_short_segments_are_an_environment_together() -> None:
    random, samples, found = Random(1), ThreadSamples(), Counter[Position]()
    for _ in range(3000):
        frame_times = [0, 0, 0, SAMPLE if random.random() < 5_000 / SAMPLE else 0]
        found[samples.position(AFTER_STEP, 5_000, frame_times)] += 1
    assert found[Position.ENVIRONMENT] > 2900


def test_short_checkpoints_do_not_make_all_steps_checkpoints() -> None:
    random, samples, found = Random(1), ThreadSamples(), Counter[Position]()
    for number in range(3000):
        lasts, at = (40_000, 1) if number % 20 == 0 else (1_000, 0)
        frame_times = [0] * len(FRAME_POSITIONS)
        frame_times[at] = SAMPLE if random.random() < lasts / SAMPLE else 0
        found[samples.position(AFTER_STEP, lasts, frame_times)] += 1
    assert found == {AFTER_STEP: 3000}


def test_a_long_checkpoint_among_short_environment_steps_is_one() -> None:
    samples = ThreadSamples()
    for _ in range(100):
        samples.position(AFTER_STEP, 5_000, [0, 0, 0, 5_000])
    assert samples.position(AFTER_STEP, 900_000, [0, 800_000, 0, 5_000]) is Position.CHECKPOINT
    assert samples.position(AFTER_STEP, 5_000, [0, 0, 0, 0]) is Position.ENVIRONMENT


def test_the_samples_of_earlier_gaps_divide_one_with_few_of_its_own() -> None:
    samples = ThreadSamples()
    assert samples.part_before_backward(0, 0) is None
    assert samples.part_before_backward(1, 0) == 1
    assert samples.part_before_backward(1, 1) == 1
    assert samples.part_before_backward(0, 0) == pytest.approx(2 / 3, rel=0.05)
    assert samples.part_before_backward(0, 1) == pytest.approx(2 / 3, rel=0.05)
    assert samples.part_before_backward(0, 0, of_waits=0.25) == 0.25


def test_a_gap_is_divided_by_its_own_samples_if_those_before_do_not_explain_them() -> None:
    samples = ThreadSamples()
    for _ in range(50):
        samples.part_before_backward(0, 1)
    assert samples.part_before_backward(0, 2) == 0
    assert samples.part_before_backward(2, 0) == 1
    assert samples.part_before_backward(5, 15) == 0.25
