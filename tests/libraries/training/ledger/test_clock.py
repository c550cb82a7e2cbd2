"""The clock of a thread: what it did between any two times."""

from itertools import pairwise

from hypothesis import given
from hypothesis import strategies as st

from otel_zernel_libraries.training.ledger import MOMENTS, STATES, Activity, Position, ThreadClock, TimedSnapshot
from tests.libraries.training.ledger.made_snapshots import NOTHING, after

FORWARD = MOMENTS[Position.FORWARD][Activity.UNKNOWN]
WAIT = MOMENTS[Position.CLIP][Activity.GPU_WAIT]


def clock(*snapshots: TimedSnapshot) -> ThreadClock:
    return ThreadClock(snapshots)


def test_the_activities_of_a_segment_are_the_difference_of_two_snapshots() -> None:
    one = after(NOTHING, 100, waits={Activity.FILE: 50})
    other = after(one, 30, waits={Activity.FILE: 10, Activity.TIMER: 60}, read=4096, operators=2)
    (segment,) = clock((1_000, one), (1_100, other)).segments(1_000, 1_100, FORWARD)
    assert {moment.activity: spent for moment, spent in segment.times} == {
        Activity.OPERATOR: 30,
        Activity.FILE: 10,
        Activity.TIMER: 60,
    }
    assert (segment.position, segment.activity) == (Position.FORWARD, Activity.TIMER)
    assert segment.work is not None
    assert (segment.work.read, segment.work.operators) == (4096, 2)


def test_time_on_the_cpu_without_an_operator_is_python() -> None:
    (segment,) = clock((0, NOTHING), (100, after(NOTHING, 100))).segments(0, 100, FORWARD)
    assert segment.spent == ((MOMENTS[Position.FORWARD][Activity.PYTHON], 100),)


def test_the_time_of_probes_is_a_part_of_the_operators_and_then_of_all_else_on_the_cpu() -> None:
    begin = NOTHING._replace(samples=(0, 0, 0, 0), hits=5)
    end = after(begin, 1000, waits={Activity.FILE: 500}, operators=8)._replace(samples=(0, 6, 3, 1), hits=15)
    spent = {}
    for of_hit in (0.0, 40.0, 80.0, 200.0):
        (segment,) = ThreadClock([(0, begin), (1500, end)], of_hit=of_hit).segments(0, 1500, FORWARD)
        assert segment.work
        assert segment.work.hits == 10
        spent[of_hit] = {moment.activity.value: time for moment, time in segment.spent}
    assert spent == {
        0.0: {"operator": 600, "python": 300, "native": 100, "file": 500},
        40.0: {"operator": 200, "python": 300, "native": 100, "probe": 400, "file": 500},
        80.0: {"python": 100, "native": 100, "probe": 800, "file": 500},
        200.0: {"probe": 1000, "file": 500},
    }


def test_waits_for_other_ranks_end_the_segment_of_their_position() -> None:
    waited = after(NOTHING, 40, waits={Activity.COLLECTIVE: 55, Activity.LOCK: 5}, launches=2, last_launch=90)
    own, meeting = clock((0, NOTHING), (100, waited)).segments(0, 100, FORWARD)
    assert (own.start, own.end, meeting.start, meeting.end) == (0, 45, 45, 100)
    assert {moment.activity: spent for moment, spent in own.spent} == {Activity.PYTHON: 40, Activity.LOCK: 5}
    assert meeting.spent == ((MOMENTS[Position.FORWARD][Activity.COLLECTIVE], 55),)
    assert own.work
    assert meeting.work
    assert (own.work.launches, meeting.work.launches) == (2, 0)


def test_without_snapshots_around_it_a_segment_has_what_its_interval_shows() -> None:
    some = clock((50_000, NOTHING), (100_000, after(NOTHING, 50_000)))
    assert some.segments(0, 100_000, FORWARD)[0].moment is FORWARD
    assert some.segments(0, 100, FORWARD)[0].work is None
    assert some.segments(60, 90, WAIT)[0].spent == ((WAIT, 30),)


def test_a_count_that_overflows_goes_on() -> None:
    before = NOTHING._replace(launches=2**32 - 1)
    (segment,) = clock((0, before), (10, after(before, 10)._replace(launches=4))).segments(0, 10, FORWARD)
    assert segment.work is not None
    assert segment.work.launches == 5


def test_the_launches_of_a_segment_are_at_their_times_since_1970() -> None:
    """The snapshots have a clock of their own."""
    one = after(NOTHING, 100)
    other = after(one, 100, launches=3, first_launch=120, last_launch=180)
    last = after(other, 100, launches=1, first_launch=210, last_launch=210)
    some = clock((1_100, one), (1_200, other), (1_300, last))
    work = some.work_between(1_100, 1_200)
    assert work is not None
    assert (work.launches, work.first_launch, work.last_launch) == (3, 1_120, 1_180)
    work = some.work_between(1_100, 1_300)
    assert work is not None
    assert (work.launches, work.first_launch, work.last_launch) == (4, 1_120, 1_210)


TIMES = st.lists(st.tuples(*[st.integers(0, 10**6)] * len(STATES)), min_size=1, max_size=6)


@given(TIMES, st.lists(st.floats(0, 1), min_size=1, max_size=9))
def test_segments_in_a_row_add_up_to_the_time_and_to_the_counts(
    periods: list[tuple[int, ...]], cuts: list[float]
) -> None:
    snapshots = [(0, NOTHING)]
    for times in periods:
        waits = {state: time for state, time in zip(STATES, times, strict=True) if state}
        snapshot = after(snapshots[-1][1], times[0] + 1, waits=waits, operators=7, read=1000)
        snapshots.append((snapshot.time, snapshot))
    end, some = snapshots[-1][0], clock(*snapshots)
    edges = sorted({0, end, *(round(cut * end) for cut in cuts)})
    segments = [segment for start, until in pairwise(edges) for segment in some.segments(start, until, FORWARD)]
    for segment in segments:
        assert sum(spent for _, spent in segment.spent) == segment.end - segment.start
        assert all(spent >= 0 for _, spent in segment.spent)
    assert sum(segment.work.operators for segment in segments if segment.work) == 7 * len(periods)
    assert sum(segment.work.read for segment in segments if segment.work) == 1000 * len(periods)


def test_counters_that_begin_again_show_nothing_between_two_counts() -> None:
    """The receiver was restarted, or another thread has the same id."""
    before = after(NOTHING, 1_000_000, read=5_000, operators=70, launches=90)
    again = NOTHING._replace(time=before.time + 100_000)
    later = after(again, 100_000, operators=3)
    some = clock((1_000_000, before), (1_100_000, again), (1_200_000, later))
    assert some.work_between(1_000_000, 1_100_000) is None
    assert some.segments(1_000_000, 1_100_000, FORWARD)[0] == (1_000_000, 1_100_000, FORWARD, (), None)
    assert some.at(1_050_000) is None
    (segment,) = some.segments(1_100_000, 1_200_000, FORWARD)
    assert segment.work is not None
    assert segment.work.operators == 3


def test_fewer_hits_of_probes_than_before_take_no_time_off() -> None:
    """A sender may send any numbers."""
    begin = after(NOTHING, 1000)._replace(hits=1_000_000)
    end = after(begin, 1000, operators=2)._replace(hits=5)
    assert clock((1000, begin), (2000, end)).segments(1000, 2000, FORWARD) == ((1000, 2000, FORWARD, (), None),)


def test_a_kernel_that_counts_no_times_shows_no_activity() -> None:
    last = after(NOTHING, 100, launches=2)._replace(known=0)
    (segment,) = clock((0, NOTHING), (100, last)).segments(0, 100, FORWARD)
    assert segment.moment is FORWARD
    assert segment.work is not None
    assert segment.work.launches == 2


def test_a_snapshot_counts_for_the_edge_of_its_span_some_us_away() -> None:
    some = clock((1_002_000, NOTHING), (1_998_000, after(NOTHING, 996_000)))
    assert some.knows(1_000_000, 2_000_000)
    assert some.segments(1_000_000, 2_000_000, FORWARD)[0].activity is Activity.PYTHON
    assert some.segments(900_000, 2_000_000, FORWARD)[0].moment is FORWARD


def test_samples_divide_the_time_on_the_cpu() -> None:
    last = after(NOTHING, 1_000, operators=7, waits={Activity.FILE: 50})._replace(samples=(9, 5, 3, 2))
    (segment,) = clock((0, NOTHING), (1_050, last)).segments(0, 1_050, FORWARD)
    assert {moment.activity: spent for moment, spent in segment.times} == {
        Activity.OPERATOR: 500,
        Activity.PYTHON: 300,
        Activity.NATIVE: 200,
        Activity.FILE: 50,
    }


def test_samples_belong_to_the_segment_whose_edge_is_next_to_their_snapshot() -> None:
    middle = after(NOTHING, 1_000_000)._replace(samples=(0, 0, 0, 12))
    last = after(middle, 1_000_000)._replace(samples=(0, 0, 12, 12))
    some = clock((0, NOTHING), (1_000_000, middle), (2_000_000, last))
    (before,), (behind,) = some.segments(0, 999_000, FORWARD), some.segments(999_000, 2_000_000, FORWARD)
    assert (before.activity, behind.activity) == (Activity.NATIVE, Activity.PYTHON)


def test_with_too_few_samples_the_time_after_the_begin_of_the_last_operator_is_python() -> None:
    last = after(NOTHING, 1_000, operators=7, last_operator=400)._replace(samples=(0, 1, 0, 0))
    (segment,) = clock((0, NOTHING), (1_000, last)).segments(0, 1_000, FORWARD)
    assert {moment.activity: spent for moment, spent in segment.times} == {
        Activity.OPERATOR: 400,
        Activity.PYTHON: 600,
    }


def test_without_samples_one_operator_claims_the_time_on_the_cpu() -> None:
    last = after(NOTHING, 1_000, operators=1, last_operator=400)
    (segment,) = clock((0, NOTHING), (1_000, last)).segments(0, 1_000, FORWARD)
    assert segment.spent == ((MOMENTS[Position.FORWARD][Activity.OPERATOR], 1_000),)
