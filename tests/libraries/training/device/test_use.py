"""The use of a device from a thread's calls, against a device that is simulated kernel by kernel.

What-ifs: the replayed time without something against the same loop, simulated again without it.

The calls to a device in the segments of a ledger.
"""

import math
import random
from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from otel_zernel_libraries.training import ledger
from otel_zernel_libraries.training.device import Launches, Segment, Stream, device_use
from otel_zernel_libraries.training.ledger import MOMENTS, Activity, Position, Work
from tests.libraries.training.device.simulated import NEVER, Loop, Phase, Run, draw, drawn, replayed, simulate

MS = 1_000_000


def loop(sync_every: int, *, data: float, kernel: float, steps: int = 60, after: Position = Position.OPTIMIZER) -> Loop:
    """A loop with 300 kernels a step, which the thread launches within 4.5 ms."""
    phases = (
        Phase(Position.LOAD, data),
        Phase(Position.FORWARD, 0.001, (kernel,) * 100, (1 / 101,) * 101),
        Phase(Position.BACKWARD, 0.001, (kernel,) * 180, (1 / 181,) * 181),
        Phase(Position.OPTIMIZER, 0.001, (kernel,) * 20, (1 / 21,) * 21),
    )
    return Loop(phases, steps, sync_every, after)


def simulated(drawn: Loop) -> Run:
    return simulate(drawn, random.Random(1))


def share_of(seconds: float, run: Run) -> float:
    return seconds / run.seconds


def test_the_truth_is_within_the_bounds_of_every_drawn_loop_and_a_busy_share_makes_it_known() -> None:
    errors = []
    for number, (_, run) in enumerate(drawn(16, seed=5, steps=50)):
        truth = float(run.idle.sum()) / run.seconds
        share = run.busy_share + random.Random(number).uniform(-0.02, 0.02)
        for use in (device_use(run.segments), device_use(run.segments, min(max(share, 0.0), 1.0))):
            assert use
            low, best, high = (bound / run.seconds for bound in use.starved())
            assert low - 0.001 <= truth <= high + 0.001
            assert low <= best <= high
        errors.append(abs(best - truth))
    assert sum(error <= 0.02 for error in errors) >= 15


@pytest.mark.parametrize(("sync_every", "share"), [(1, 0.21), (5, 0.05), (50, 0.0)])
def test_a_device_with_queued_work_does_not_starve_while_data_loads(sync_every: int, share: float) -> None:
    """Data takes 8 ms of each of the thread's steps. The device starves only in the first step after a wait."""
    run = simulated(loop(sync_every, data=0.008, kernel=100e-6))
    use = device_use(run.segments)
    assert use
    starved = share_of(use.starved(Position.LOAD).best, run)
    assert starved == pytest.approx(share_of(run.idle_at(Position.LOAD), run), abs=0.01)
    assert starved == pytest.approx(share, abs=0.02)


def test_time_after_a_wait_until_the_next_launch_is_certainly_idle() -> None:
    run = simulated(loop(1, data=0.008, kernel=100e-6))
    use = device_use(run.segments)
    assert use
    assert share_of(use.starved(Position.LOAD).low, run) > 0.19
    assert use.starved(Position.LOAD, Activity.PYTHON) == use.starved(Position.LOAD)
    assert use.starved(Position.LOAD, Activity.FILE).high == 0
    assert use.starved(activity=Activity.GPU_WAIT).high == 0


def test_time_in_a_wait_is_certainly_busy() -> None:
    run = simulated(loop(1, data=0.008, kernel=100e-6))
    use = device_use(run.segments)
    assert use
    assert use.busy.low > sum(segment.wait for segment in run.segments) * 1e-9


def test_without_any_wait_the_use_is_undetermined_until_a_busy_share_is_known() -> None:
    run = simulated(loop(NEVER, data=0.008, kernel=20e-6))
    use = device_use(run.segments[:-1])
    assert use
    assert use.undetermined > 0.4 * run.seconds
    use = device_use(run.segments, run.busy_share)
    assert use
    assert use.undetermined < 0.1 * run.seconds
    assert share_of(use.starved().best, run) == pytest.approx(1 - run.busy_share, abs=0.02)


def test_bounds_of_positions_and_activities_add_up_to_those_of_all() -> None:
    run = simulated(loop(5, data=0.004, kernel=40e-6))
    use = device_use(run.segments)
    assert use
    best = sum(use.starved(position).best for position in Position)
    assert best == pytest.approx(use.starved().best)
    assert sum(use.starved(activity=activity).best for activity in Activity) == pytest.approx(best)
    assert use.busy.best + best == pytest.approx(run.seconds)


@settings(max_examples=40, deadline=None)
@given(st.data())
def test_any_segments_have_finite_bounds_in_their_order(data: st.DataObject) -> None:
    """The segments of a thread follow each other, but nothing else about them need make sense."""
    segments, end = [], 0
    positions = st.sampled_from([Position.LOAD, Position.FORWARD, Position.BACKWARD])
    for lasted in data.draw(st.lists(st.integers(0, 50 * MS), min_size=1, max_size=30)):
        begin, end = end, end + lasted
        times = st.integers(begin, end)
        launches: tuple[Launches, ...] = ()
        if count := data.draw(st.sampled_from([0, 0, 1, 700, 2**32 - 1])):
            first, last = sorted((data.draw(times), data.draw(times)))
            launches = (Launches(count, first, last, data.draw(st.sampled_from(Stream))),)
        blocked, wait = (data.draw(st.integers(0, lasted)) for _ in range(2))
        drains = data.draw(st.frozensets(st.sampled_from(Stream)))
        segments.append(Segment(begin, end, data.draw(positions), launches, blocked, wait, drains))
    share = data.draw(st.none() | st.floats(0, 1))
    use = device_use(segments, share, sees_queue=data.draw(st.booleans()))
    if use:
        for bounds in (use.starved(), use.busy, *use.starved_by_moment().values()):
            assert math.isfinite(bounds.low + bounds.high)
            assert bounds.low <= bounds.best + 1e-9
            assert bounds.best <= bounds.high + 1e-9
        assert math.isfinite(replayed(use))


def test_a_process_without_launches_has_no_device() -> None:
    assert device_use([Segment(0, MS, Position.FORWARD)]) is None


def test_the_device_is_busy_while_any_stream_is() -> None:
    """Each step copies for 6 ms beside 2 ms of kernels, and waits for the copies."""
    segments = []
    for step in range(50):
        begin = step * 10 * MS
        launches = Launches(10, begin, begin + MS), Launches(1, begin, begin, Stream.COPY)
        spent = {Activity.PYTHON: MS}
        segments.append(Segment(begin, begin + MS, Position.FORWARD, launches, activities=spent))
        drains = frozenset({Stream.COPY})
        waited = Segment(begin + MS, begin + 6 * MS, Position.CLIP, wait=5 * MS, drains=drains)
        segments.append(waited)
        segments.append(Segment(begin + 6 * MS, begin + 10 * MS, Position.LOAD, activities={Activity.FILE: 4 * MS}))
    use = device_use(segments)
    assert use
    assert use.works[Position.FORWARD, Stream.COPY] == pytest.approx(0.006, rel=0.1)
    assert use.starved(Position.CLIP).high < 0.02 * use.seconds
    assert use.starved(Position.LOAD).high == pytest.approx(0.4 * use.seconds, rel=0.1)


@pytest.mark.parametrize("number", range(8))
def test_the_gain_without_data_loading_is_that_of_the_loop_without_it(number: int) -> None:
    loop = draw(random.Random(number), steps=120)
    run, faster = simulate(loop, random.Random(1)), simulate(loop.without(Position.LOAD), random.Random(1))
    use = device_use(run.segments, run.busy_share)
    assert use
    assert replayed(use) == pytest.approx(run.seconds, rel=0.02)
    gain = (replayed(use) - replayed(use, Position.LOAD)) / run.seconds
    assert gain == pytest.approx((run.seconds - faster.seconds) / run.seconds, abs=0.02)


def test_a_device_without_work_leaves_the_thread_its_own_time() -> None:
    run = simulate(draw(random.Random(3), steps=20), random.Random(1))
    use = device_use(run.segments)
    assert use
    own = sum(segment.own for segment in run.segments) * 1e-9
    assert replayed(replace(use, works=dict.fromkeys(use.works, 0.0))) == pytest.approx(own)


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
