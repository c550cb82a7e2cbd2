"""The estimated cost of a probe follows the distance between hits."""

from contextlib import closing

import pytest
from hypothesis import given
from hypothesis import strategies as st

from otel_zernel_receivers.ebpf.budget.overhead import Group
from otel_zernel_receivers.ebpf.budget.scaling import probe_seconds
from otel_zernel_receivers.ebpf.probes.calls import Operation
from otel_zernel_receivers.ebpf.probes.cost import COLD, HIGHEST_COLDNESS, HOT, TRAINING, ProbeCost, coldness_of
from otel_zernel_receivers.ebpf.probes.loading import load
from otel_zernel_receivers.ebpf.tables.process_table import HitCount, WatchedProcess
from otel_zernel_receivers.ebpf.tables.series import SeriesKey
from otel_zernel_receivers.ebpf.tables.tables import Limits

COST = ProbeCost(300, call_ns=1000, nested_ns=600, entry_ns=500, coldness=3.0)
JOB = WatchedProcess(0, 1, 100)


@pytest.mark.parametrize(
    ("rate", "factor"), [(0, 3), (1, 3), (COLD, 3), (2 / (1 / HOT + 1 / COLD), 2), (HOT, 1), (10 * HOT, 1)]
)
def test_hits_with_work_between_them_cost_more(rate: float, factor: float) -> None:
    cost = COST.at(rate)
    found = cost.call_ns, cost.nested_ns, cost.entry_ns
    assert found == pytest.approx((1000 * factor, 600 * factor, 500 * factor))
    assert cost.floor_ns == COST.floor_ns


@given(st.floats(-1e4, 1e4), st.floats(-1e4, 1e4))
def test_a_disturbed_measurement_stays_within_limits(hot: float, between_work: float) -> None:
    assert 1.0 <= coldness_of(hot, between_work) <= HIGHEST_COLDNESS


def test_a_hit_in_a_training_costs_more_than_one_amid_the_work_of_the_calibration() -> None:
    assert coldness_of(1000, 1500) == pytest.approx(1.5 * TRAINING)


@pytest.mark.parametrize(
    ("hits", "launches", "expected_us"),
    [
        (HitCount(10), 0, 30),  # no call explains them, and only launches nest
        (HitCount(20), 10, 10 * 3 + 10 * 1.8),  # each launch makes a call of the driver
        (HitCount(4, 11, 6), 0, 4 * 3 + 11 * 1.5),  # a step of PyTorch: scopes and operators
    ],
)
def test_every_hit_costs_what_its_kind_costs(hits: HitCount, launches: int, expected_us: float) -> None:
    calls: dict[SeriesKey, int] = {(JOB, Operation.RUNTIME_LAUNCH, 0): launches} if launches else {}
    assert probe_seconds(calls, {JOB: hits}, COST, 1.0) == {JOB: pytest.approx(expected_us / 1e6)}


def test_a_short_sample_of_many_hits_costs_what_hits_one_after_another_cost() -> None:
    calls: dict[SeriesKey, int] = {(JOB, Operation.DRIVER_LAUNCH, 0): 20_000}
    spent = probe_seconds(calls, {JOB: HitCount(20_000)}, COST, 1.0, {Group.LAUNCH: 0.02})
    assert spent == {JOB: pytest.approx(20_000 * 1e-6)}  # a million hits a second while the probes are on


def test_the_calibration_measures_every_cost(loadable: None) -> None:
    with closing(load(Limits(max_processes=8, max_series=8))) as loaded:
        cost = loaded.cost
    assert 0 < cost.entry_ns <= cost.call_ns
    assert 1.0 <= cost.coldness <= HIGHEST_COLDNESS
