"""The level of a gauge counts only while new values come."""

import pytest

from otel_zernel.batch import Batch
from otel_zernel_processors.phases.signals.levels import Level
from tests.processors.phases.processing import phases_of, run
from tests.processors.phases.training import gauge_batch, points_without_value

S = 1_000_000_000


def test_a_level_is_valid_for_three_times_the_last_two_values_distance() -> None:
    level = Level()
    assert level.at(0) is None
    for second in (100, 102):
        level.set(second * S, 0.5)
    assert level.at(108 * S) == 0.5
    assert level.at(108 * S + 1) is None
    level.set(120 * S, 0.7)
    assert level.at(120 * S) == 0.7


def test_nan_ends_a_level_at_once() -> None:
    level = Level()
    level.set(S, 0.5)
    level.set(2 * S, float("nan"))
    assert level.at(2 * S) is None


def stalled(*end: Batch) -> list[Batch]:
    """A process computes for 10 s; then it hangs for 50 s, in which NVML has no sample of it."""
    used = gauge_batch("zernel.gpu.process.utilization", [(at, 0.95) for at in range(0, 10_001, 1000)], process_pid=42)
    waits = gauge_batch("zernel.process.cpu.burst", [(at, 0.0) for at in range(0, 60_001, 100)], process_pid=42)
    return run(Batch.join([used, *end, waits]), interval="10s")


@pytest.mark.parametrize("is_ended", [False, True])
def test_a_stalled_job_does_not_compute_for_ever(is_ended: bool) -> None:
    end = [points_without_value("zernel.gpu.process.utilization", 10_500, process_pid=42)] if is_ended else []
    computing = phases_of(stalled(*end))["gpu_compute"]
    assert computing == pytest.approx(7200 if is_ended else 10_300, abs=500), "the first 3 s are not stable"


@pytest.mark.parametrize("is_ended", [False, True])
def test_a_gpu_that_is_no_longer_read_does_not_compute_for_ever(is_ended: bool) -> None:
    used = gauge_batch("hw.gpu.utilization", [(at, 0.95) for at in range(0, 10_001, 1000)], zernel_gpu_index=0)
    end = [points_without_value("hw.gpu.utilization", 10_500, zernel_gpu_index=0)] if is_ended else []
    memory = gauge_batch("zernel.cuda.memory.used", [(0, 1.0)], process_pid=42, zernel_gpu_index=0)
    waits = gauge_batch("zernel.process.cpu.burst", [(at, 0.0) for at in range(0, 60_001, 100)], process_pid=42)
    computing = phases_of(run(Batch.join([memory, used, *end, waits]), interval="10s")).get("gpu_compute", 0.0)
    assert computing == pytest.approx(0 if is_ended else 13_000, abs=1000), (
        "all points of the GPU come before the others"
    )


def test_a_staleness_point_makes_no_new_process() -> None:
    made = run(points_without_value("zernel.gpu.process.utilization", 10_500, process_pid=42))
    assert not [out for out in made if "zernel.verdict" in str(out.metrics)]
