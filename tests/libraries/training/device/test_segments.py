"""Segments from the snapshots of a thread."""

from otel_zernel_libraries.training.device import Launches, Segment, Stream
from otel_zernel_libraries.training.ledger import STATES, Activity, Position, Snapshot


def snapshot(time: int, launches: int, first: int = 0, last: int = 0, **spent: int) -> Snapshot:
    times = tuple(spent.get(state.value if state else "on_cpu", 0) for state in STATES)
    return Snapshot(time, times, 0, first, last, 0, 0, 0, launches, 0, 0, 0, 0, 0, 0)


def test_a_segment_is_the_difference_of_two_snapshots() -> None:
    before = snapshot(100, 2**32 - 1, on_cpu=50, gpu_wait=10)
    after = snapshot(200, 2, first=110, last=130, on_cpu=90, gpu_wait=40, launch_blocked=30)
    segment = Segment.between(before, after, Position.FORWARD, is_drained=True)
    assert (segment.begin, segment.end, segment.position) == (100, 200, Position.FORWARD)
    assert segment.launches == (Launches(3, 110, 130),)
    assert (segment.wait, segment.blocked, segment.own) == (30, 30, 40)
    assert segment.drains == set(Stream)
    assert segment.activities == {Activity.UNKNOWN: 40, Activity.GPU_WAIT: 30, Activity.LAUNCH_BLOCKED: 30}


def test_a_segment_without_launches_or_waits_has_none() -> None:
    segment = Segment.between(snapshot(1, 5), snapshot(9, 5), Position.LOAD, is_drained=False)
    assert (segment.launches, segment.drains, segment.wait) == ((), frozenset(), 0)
