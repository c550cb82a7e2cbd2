"""The time line in bounded memory."""

from itertools import pairwise

from hypothesis import given
from hypothesis import strategies as st

from otel_zernel_libraries.training import BarSegment, StepBar
from otel_zernel_libraries.training.state import StepBars, merged
from otel_zernel_libraries.training.state.step_bars import longest_segments

MS = 1_000_000


def bar(number: int, lasts_ms: int = 10) -> StepBar:
    start = number * 100 * MS
    spent = (lasts_ms * MS, 0, 0, 0, 0)
    return StepBar(start, start + lasts_ms * MS, "training", number, spent)


@given(st.lists(st.integers(1, 90), max_size=300), st.integers(2, 20))
def test_a_long_run_stays_bounded_and_loses_no_time(durations: list[int], most: int) -> None:
    bars = StepBars(most)
    for number, lasts in enumerate(durations):
        bars.add(bar(number, lasts))
    assert len(bars.bars) <= most
    assert sum(one.steps for one in bars.bars) == len(durations)
    assert sum(one.phase_ns[0] for one in bars.bars) == sum(durations) * MS
    assert max((one.longest_ns for one in bars.bars), default=0) == max(durations, default=0) * MS
    assert all(one.end_ns <= other.start_ns for one, other in pairwise(bars.bars))


def test_merged_steps_keep_the_first_number_and_the_longest_duration() -> None:
    [one] = merged([bar(7, 10), bar(8, 50)], 2)
    assert (one.number, one.steps, one.longest_ns, one.start_ns, one.end_ns) == (7, 2, 50 * MS, 700 * MS, 850 * MS)
    assert one.segments == ()


def test_neighbouring_segments_of_one_detail_are_one() -> None:
    parts = [BarSegment("gpu_compute", "forward", 10, 20), BarSegment("gpu_compute", "forward", 20, 30)]
    assert longest_segments(parts) == (BarSegment("gpu_compute", "forward", 10, 30),)


def test_of_many_segments_the_longest_stay_in_order() -> None:
    parts = [BarSegment("unknown", str(number), 100 * number, 100 * number + 10 + number % 2) for number in range(30)]
    kept = longest_segments(parts, 5)
    assert len(kept) == 5
    assert all(one.start_ns < other.start_ns for one, other in pairwise(kept))
    assert all(one.end_ns - one.start_ns == 11 for one in kept)
