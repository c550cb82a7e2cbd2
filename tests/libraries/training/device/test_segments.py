"""The calls to a device in the segments of a ledger."""

from otel_zernel_libraries.training import ledger
from otel_zernel_libraries.training.device import Launches, Segment, Stream
from otel_zernel_libraries.training.ledger import MOMENTS, Activity, Position, Work

FORWARD = MOMENTS[Position.FORWARD]


def test_a_segment_has_the_launches_and_the_waits_of_its_work() -> None:
    work = Work(9, 3, 110, 130, *[0] * 7)
    times = {Activity.OPERATOR: 40, Activity.GPU_WAIT: 30, Activity.LAUNCH_BLOCKED: 30}
    spent = tuple((FORWARD[activity], time) for activity, time in times.items())
    segment = Segment.of(ledger.Segment(100, 200, FORWARD[Activity.OPERATOR], spent, work), frozenset(Stream))
    assert (segment.begin, segment.end, segment.position) == (100, 200, Position.FORWARD)
    assert segment.launches == (Launches(3, 110, 130),)
    assert (segment.wait, segment.blocked, segment.own) == (30, 30, 40)
    assert segment.drains == set(Stream)
    assert segment.activities == times


def test_launches_without_a_known_time_are_spread_over_the_segment() -> None:
    work = Work(9, 3, 0, 0, *[0] * 7)
    segment = Segment.of(ledger.Segment(100, 200, FORWARD[Activity.OPERATOR], (), work))
    assert segment.launches == (Launches(3, 100, 200),)
    assert segment.drains == frozenset()


def test_a_segment_without_snapshots_launches_nothing() -> None:
    assert Segment.of(ledger.Segment(1, 9, FORWARD[Activity.PYTHON])).launches == ()
