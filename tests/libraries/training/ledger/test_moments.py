"""The phase of a moment."""

import pytest

from otel_zernel_libraries.training.ledger import MOMENTS, Activity, Phase, Position, phase_of
from otel_zernel_libraries.training.words import DETAIL_NAMES


@pytest.mark.parametrize("position", Position)
def test_a_collective_is_a_collective_wherever_it_is(position: Position) -> None:
    assert phase_of(position, Activity.COLLECTIVE) is Phase.NCCL_COLLECTIVE


@pytest.mark.parametrize("activity", [activity for activity in Activity if activity is not Activity.COLLECTIVE])
def test_only_the_position_decides_the_phase_of_other_moments(activity: Activity) -> None:
    assert phase_of(Position.LOAD, activity) is Phase.DATA_LOADING
    assert phase_of(Position.COMPILE, activity) is Phase.GPU_COMPUTE
    assert phase_of(Position.AVERAGE, activity) is Phase.OPTIMIZER_STEP
    assert phase_of(Position.CHECKPOINT, activity) is Phase.UNKNOWN


@pytest.mark.parametrize("position", Position)
@pytest.mark.parametrize("activity", Activity)
def test_each_moment_has_its_phase_and_a_detail_with_words(position: Position, activity: Activity) -> None:
    moment = MOMENTS[position][activity]
    assert (moment.position, moment.activity) == (position, activity)
    assert moment.phase is phase_of(position, activity)
    assert moment.detail in DETAIL_NAMES
    assert (moment.detail == "host") <= (moment.phase is Phase.UNKNOWN)
