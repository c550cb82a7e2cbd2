"""What-ifs: the replayed time without something against the same loop, simulated again without it."""

import random

import pytest

from otel_zernel_libraries.training.device import Segment, device_use, replay
from otel_zernel_libraries.training.ledger import Position
from tests.libraries.training.device.simulated import draw, simulate


@pytest.mark.parametrize("number", range(8))
def test_the_gain_without_data_loading_is_that_of_the_loop_without_it(number: int) -> None:
    loop = draw(random.Random(number), steps=120)
    run, faster = simulate(loop, random.Random(1)), simulate(loop.without(Position.LOAD), random.Random(1))
    use = device_use(run.segments, run.busy_share)
    assert use

    def loading(segment: Segment) -> float:
        return segment.own if segment.position is Position.LOAD else 0

    replayed = replay(run.segments, use.works)
    assert replayed == pytest.approx(run.seconds, rel=0.02)
    gain = (replayed - replay(run.segments, use.works, loading)) / run.seconds
    assert gain == pytest.approx((run.seconds - faster.seconds) / run.seconds, abs=0.02)


def test_a_device_without_work_leaves_the_thread_its_own_time() -> None:
    run = simulate(draw(random.Random(3), steps=20), random.Random(1))
    use = device_use(run.segments)
    assert use
    own = sum(segment.own for segment in run.segments) * 1e-9
    assert replay(run.segments, dict.fromkeys(use.works, 0.0)) == pytest.approx(own)
