"""The division of CPU time by samples."""

from collections import Counter
from random import Random

import pytest

from otel_zernel_libraries.training.ledger import Activity, CpuShares, Position
from otel_zernel_libraries.training.ledger.snapshots import SAMPLED

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
    random, shares, found = Random(1), CpuShares(), Counter[Activity]()
    spent = 9.0, 15.0, 6.0
    for _ in range(4000):
        found.update(shares.divide(LOAD, 30 * MS, sampled(random, 19, *spent)) or {})
    for activity, lasts in zip(ACTIVITIES, spent, strict=True):
        assert activity
        assert found[activity] / found.total() == pytest.approx(lasts / 30, abs=0.02)


def test_a_division_is_of_all_the_time() -> None:
    assert CpuShares().divide(LOAD, 1001, [9, 4, 4, 2]) == {
        Activity.OPERATOR: 401,
        Activity.PYTHON: 400,
        Activity.NATIVE: 200,
    }


def test_few_samples_divide_nothing() -> None:
    shares = CpuShares()
    assert shares.divide(LOAD, MS, [0, 5, 4, 0]) is None
    assert shares.divide(LOAD, MS, [1000, 0, 0, 0]) is None, "the states of calls say what they are"
    assert shares.divide(FORWARD, MS, [0, 1, 0, 0]) is None, "each position has its own samples"
    assert shares.divide(LOAD, MS, [0, 2, 0, 0])


def test_a_long_segment_has_only_its_own_samples() -> None:
    """A log that is written every hundredth step."""
    random, shares = Random(1), CpuShares()
    for _ in range(100):
        shares.divide(LOAD, 30 * MS, sampled(random, 19, 30))
    assert shares.divide(LOAD, 3000 * MS, [0, 0, 0, 57]) == {Activity.NATIVE: 3000 * MS}
    assert shares.divide(LOAD, 30 * MS, [0, 0, 0, 0]) == {Activity.OPERATOR: 30 * MS}


def test_a_program_that_changes_is_followed() -> None:
    random, shares = Random(1), CpuShares()
    for spent in ((30, 0, 0), (0, 0, 30)):
        for _ in range(2000):
            divided = shares.divide(LOAD, 30 * MS, sampled(random, 19, *spent))
    assert divided
    assert divided[Activity.NATIVE] > 29 * MS
