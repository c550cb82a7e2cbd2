"""What-ifs: the replayed time without something against the same loop, simulated again without it."""

import random
from dataclasses import replace

import pytest

from otel_zernel_libraries.training.device import device_use
from otel_zernel_libraries.training.ledger import Position
from tests.libraries.training.device.simulated import draw, replayed, simulate


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
