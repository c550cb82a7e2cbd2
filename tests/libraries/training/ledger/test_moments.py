"""The phase of a moment."""

import pytest

from otel_zernel_libraries.training.ledger import Activity, Phase, Position, phase_of


@pytest.mark.parametrize("position", Position)
def test_a_collective_is_a_collective_wherever_it_is(position: Position) -> None:
    assert phase_of(position, Activity.COLLECTIVE) is Phase.NCCL_COLLECTIVE


@pytest.mark.parametrize("activity", [activity for activity in Activity if activity is not Activity.COLLECTIVE])
def test_only_the_position_decides_the_phase_of_other_moments(activity: Activity) -> None:
    assert phase_of(Position.LOAD, activity) is Phase.DATA_LOADING
    assert phase_of(Position.COMPILE, activity) is Phase.GPU_COMPUTE
    assert phase_of(Position.AVERAGE, activity) is Phase.OPTIMIZER_STEP
    assert phase_of(Position.CHECKPOINT, activity) is Phase.UNKNOWN
