"""Aligning ranks by time: the right offset, or none."""

import pytest

from otel_zernel_processors.phases.alignment.job_steps import Meeting, offset

STEP = 40_000_000


def meetings(count: int, *, first: int = 1, shift: int = 0, start: int = 0) -> list[Meeting]:
    """A meeting every 40 ms, with the numbers of a process that was attached at `start`."""
    return [Meeting((start + at) * STEP + shift, first + at) for at in range(count)]


@pytest.mark.parametrize("late", [0, 1, 7, 30])
def test_a_rank_that_was_attached_later_is_ahead_by_the_steps_it_missed(late: int) -> None:
    assert offset(meetings(64), meetings(64 - late, start=late, shift=2_000_000)) == late


def test_the_reference_may_be_the_later_one() -> None:
    assert offset(meetings(40, start=20), meetings(60)) == -20


def test_times_that_differ_by_half_a_step_prove_nothing() -> None:
    assert offset(meetings(64), meetings(64, shift=STEP // 2)) is None


def test_too_few_meetings_prove_nothing() -> None:
    assert offset(meetings(2), meetings(64)) is None
    assert offset(meetings(64), meetings(2)) is None
    assert offset([], []) is None


def test_ranks_without_a_common_time_are_not_aligned() -> None:
    assert offset(meetings(20), meetings(20, start=100)) is None


def test_single_meetings_that_one_rank_lost_do_not_matter() -> None:
    kept = [meeting for meeting in meetings(50) if meeting.number not in {7, 23}]
    assert offset(meetings(50), kept) == 0


def test_numbers_that_shift_halfway_are_doubtful() -> None:
    shifted = [*meetings(20), *meetings(20, first=22, start=20)]
    assert offset(meetings(40), shifted) is None
