"""Probes take no more of a CPU than `max_overhead`: above it, probes are sampled, those of launches first."""

import pickle
from dataclasses import replace
from itertools import chain

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from otel_zernel_receivers.ebpf.budget.coverage import Coverage
from otel_zernel_receivers.ebpf.budget.overhead import (
    AVERAGED,
    GROUP_KINDS,
    LEAST,
    STEADY,
    Group,
    Hits,
    Overhead,
    group_of,
    hits_of,
)
from otel_zernel_receivers.ebpf.budget.scaling import Activity, SpeedRatio
from otel_zernel_receivers.ebpf.probes.calls import CallKind, Operation
from otel_zernel_receivers.ebpf.probes.cost import ProbeCost
from otel_zernel_receivers.ebpf.probes.libraries import PROBES
from otel_zernel_receivers.ebpf.tables.process_table import HitCount, WatchedProcess
from otel_zernel_receivers.ebpf.tables.series import SeriesKey
from tests.receivers.ebpf.budget.deciding import (
    CALL_NS,
    COST,
    JOB,
    LIMIT,
    OTHER_JOB,
    decide,
    load,
    series_of,
)

ratios = st.floats(0, 0.0099)


@given(st.lists(st.tuples(ratios, ratios, ratios), min_size=1))
def test_a_load_below_the_limit_is_never_sampled(loads: list[tuple[float, float, float]]) -> None:
    budget = Overhead(LIMIT, COST)
    assert all(decide(budget, others, launch=launch, copy_sync=copy) == {} for launch, copy, others in loads)


@given(st.floats(0.031, 1), st.floats(0, 1), st.floats(0, 1), st.floats(0, 0.005))
@example(0.031, 0.0015137900239991977, 0.0015137900239991977, 0.0)
def test_a_sampled_job_is_below_the_limit(launch: float, copy: float, collective: float, others: float) -> None:
    budget, rates = Overhead(LIMIT, COST), {"launch": launch, "copy_sync": copy, "collective": collective}
    shares = decide(budget, others, **rates)
    assert all(LEAST <= share < 1 for share in shares.values())
    least = dict.fromkeys(Group, LEAST)
    assert load(shares, others, **rates) <= max(LIMIT, load(least, others, **rates)) + 1e-9


def test_a_group_whose_probes_cost_nothing_is_not_sampled() -> None:
    """The cost of an entry may be measured as 0."""
    hits = Hits(JOB, {Group.LAUNCH: 1e5, Group.OPERATORS: 1e4}, 0)
    for decide_at_once in (False, True):
        budget = Overhead(LIMIT, replace(COST, entry_ns=0.0))
        if decide_at_once:
            budget.act([hits], 1.0)
        else:
            budget.add([hits], 1.0, {})
        assert budget.shares.keys() == {Group.LAUNCH}
    free = Overhead(LIMIT, ProbeCost(0, 0.0, 0.0, 0.0))
    free.add([hits], AVERAGED, {})
    assert free.shares == {}


def test_launches_are_sampled_first_if_that_is_enough() -> None:
    assert decide(Overhead(LIMIT, COST), launch=0.03, copy_sync=0.01) == {Group.LAUNCH: pytest.approx(0.011 / 0.03)}


def test_the_most_expensive_of_the_others_is_sampled_if_launches_and_operators_are_not_enough() -> None:
    shares = decide(Overhead(LIMIT, COST), launch=0.2, operators=0.2, copy_sync=0.1, collective=0.001)
    assert shares == {
        Group.LAUNCH: LEAST,
        Group.OPERATORS: LEAST,
        Group.COPY_SYNC: pytest.approx((0.7 * LIMIT - 0.4 * LEAST - 0.001) / 0.1),
    }


def test_a_load_around_the_limit_does_not_flap() -> None:
    budget = Overhead(LIMIT, COST)
    sampled = [bool(decide(budget, launch=load)) for load in [0.029, 0.031, 0.029, 0.031, 0.028, 0.026] * 3]
    assert sampled == [False] + [True] * 17


def test_sampling_ends_when_the_load_has_been_lower_for_a_while() -> None:
    budget = Overhead(LIMIT, COST)
    assert decide(budget, launch=0.3) == {Group.LAUNCH: pytest.approx(0.07)}
    assert [bool(decide(budget, launch=0.01)) for _ in range(STEADY)] == [True] * (STEADY - 1) + [False]


def test_a_group_without_a_sample_stays_sampled() -> None:
    budget = Overhead(LIMIT, COST)
    decide(budget, launch=0.3)
    for _ in range(2 * STEADY):
        budget.add([Hits(JOB, {}, 0)], AVERAGED, {Group.LAUNCH: 0.0})
    assert budget.shares


SECONDS_BUDGET = LIMIT * 1e9 / CALL_NS
"""Hits that a process may have in a second."""


@pytest.mark.parametrize("seconds", [0.1, 0.5, 1.0])
def test_a_burst_within_the_budget_of_a_second_starts_no_sampling(seconds: float) -> None:
    budget = Overhead(LIMIT, COST)
    budget.add([Hits(JOB, {Group.LAUNCH: 0.99 * SECONDS_BUDGET}, 0)], seconds, {})
    budget.add([Hits(JOB, {}, 0)], AVERAGED, {})
    assert budget.shares == {}


@pytest.mark.parametrize("readings", [1, 4, 10])
def test_a_process_that_uses_up_the_budget_of_a_second_is_sampled_at_once(readings: int) -> None:
    budget = Overhead(LIMIT, COST)
    for _ in range(readings):
        assert not budget.shares
        budget.add([Hits(JOB, {Group.LAUNCH: 1.05 * SECONDS_BUDGET / readings}, 0)], 1 / readings, {})
    assert budget.shares == {Group.LAUNCH: pytest.approx(0.7 / 1.05)}


def test_a_process_is_sampled_before_the_next_reading_if_it_has_used_up_its_budget() -> None:
    budget = Overhead(LIMIT, COST)
    budget.act([Hits(JOB, {Group.LAUNCH: 0.9 * SECONDS_BUDGET}, 0)], 0.25)
    assert not budget.shares
    budget.act([Hits(JOB, {Group.LAUNCH: 2 * SECONDS_BUDGET}, 0)], 0.5)
    assert budget.shares == {Group.LAUNCH: pytest.approx(0.7 / 4)}


def test_a_new_job_above_the_limit_lowers_the_shares_at_once() -> None:
    budget = Overhead(LIMIT, COST)
    decide(budget, launch=0.06)
    before = budget.shares[Group.LAUNCH]
    watched = dict.fromkeys(Group, 1.0) | {Group.LAUNCH: before}
    budget.add([Hits(OTHER_JOB, {Group.LAUNCH: 10 * SECONDS_BUDGET * before}, 0)], 1.0, watched)
    assert budget.shares == {Group.LAUNCH: pytest.approx(0.7 / 10)}


def test_without_a_limit_nothing_is_sampled() -> None:
    assert decide(Overhead(0, COST), launch=1.0) == {}


def test_without_a_limit_no_memory_is_used_for_processes() -> None:
    budget = Overhead(0, COST)
    size = len(pickle.dumps(budget))
    for pid in range(100):
        budget.add([Hits(WatchedProcess(0, pid, pid), {Group.LAUNCH: 1}, 1)], 1.0, {})
    assert len(pickle.dumps(budget)) == size


def test_samples_of_the_running_code_count_towards_the_limit() -> None:
    budget = Overhead(LIMIT, COST)
    ((one, _),) = [hits_of({}, {JOB: HitCount(0), OTHER_JOB: HitCount(0)}, {JOB: 0.04 * AVERAGED})]
    budget.add([one], AVERAGED, {})
    assert budget.excess == pytest.approx(0.04 - LIMIT)


def test_the_excess_is_the_load_that_sampling_cannot_save() -> None:
    budget = Overhead(LIMIT, COST)
    decide(budget, others=0.05, launch=0.1)
    assert budget.excess == pytest.approx(0.05 + LEAST * 0.1 - LIMIT)
    decide(budget, others=0.01, launch=0.1)
    assert budget.excess == 0


def calls_of(**counts: int) -> dict[SeriesKey, int]:
    return {(JOB, Operation[name.upper()], 0): count for name, count in counts.items()}


def test_hits_are_divided_among_groups_by_their_calls() -> None:
    calls = calls_of(runtime_launch=10, driver_launch=5, sync=4, all_reduce=3)
    (hits,) = hits_of(calls, {JOB: HitCount(50)})
    assert hits == Hits(JOB, {Group.LAUNCH: 25, Group.COPY_SYNC: 8, Group.COLLECTIVE: 3}, 14)
    (fewer,) = hits_of(calls, {JOB: HitCount(18)})
    assert fewer.others == 0
    assert fewer.sampled[Group.LAUNCH] == 12.5


def test_hits_of_operators_are_counted_by_the_kernel() -> None:
    assert hits_of({}, {JOB: HitCount(20, 80, 70)}) == [Hits(JOB, {Group.OPERATORS: 70.0}, 30.0)]
    shares = {Group.OPERATORS: 30.0, Group.IN_PLACE: 40.0}
    assert hits_of({}, {JOB: HitCount(20, 80, 30, 40)}) == [Hits(JOB, shares, 30.0)]


def test_operators_are_sampled_after_launches() -> None:
    """A part of the operators is useless, while a part of the launches can be scaled."""
    assert decide(Overhead(LIMIT, COST), launch=0.014, operators=0.018).keys() == {Group.LAUNCH}
    assert decide(Overhead(LIMIT, COST), launch=0.01, operators=0.08).keys() == {Group.LAUNCH, Group.OPERATORS}


def test_operators_on_one_tensor_are_sampled_before_those_of_models() -> None:
    """The first show averages of weights only, the second all passes."""
    assert decide(Overhead(LIMIT, COST), in_place=0.03, operators=0.01).keys() == {Group.IN_PLACE}


def test_operators_are_sampled_before_waits() -> None:
    assert decide(Overhead(LIMIT, COST), copy_sync=0.02, operators=0.02).keys() == {Group.OPERATORS}


def test_a_hit_of_an_operator_costs_as_much_as_an_entry() -> None:
    assert decide(Overhead(LIMIT, replace(COST, entry_ns=CALL_NS / 2)), operators=0.05) == {}
    assert decide(Overhead(LIMIT, COST), operators=0.05).keys() == {Group.OPERATORS}


def test_a_series_without_new_counts_has_no_hits() -> None:
    (hits,) = hits_of(calls_of(runtime_launch=0), {JOB: HitCount(50)})
    assert hits == Hits(JOB, {Group.LAUNCH: 0}, 50)


def test_calls_that_change_a_state_are_never_sampled() -> None:
    never = {probe.kind for probe in chain(*PROBES.values()) if group_of(probe) is None}
    operators = {*GROUP_KINDS[Group.OPERATORS], *GROUP_KINDS[Group.IN_PLACE]}
    assert never == set(CallKind) - {CallKind.CALL, CallKind.COPY, CallKind.WAIT, CallKind.COLLECTIVE} - operators


def test_a_sample_is_scaled_to_all_calls() -> None:
    reading = series_of(Operation.RUNTIME_LAUNCH, *[1] * 7)
    (scaled,) = Coverage(1.0, {}, {Group.LAUNCH: 0.7}, {reading.key: 10.0}).scaled([reading])
    assert scaled.counts.sum() == 10
    assert (scaled.sum_ns, scaled.bytes) == (1000, 100)


def test_calls_at_the_edges_of_a_sample_are_dropped() -> None:
    """While probes are taken off, some launches of the driver seem to be outside of the runtime's."""
    assert Coverage(1.0, {}, {Group.LAUNCH: 0.5}, {}).scaled([series_of(Operation.DRIVER_LAUNCH, 3)]) == []


def test_upper_bounds_of_collectives_are_dropped_while_waits_are_sampled() -> None:
    upper_bound = series_of(Operation.ALL_REDUCE + 8, 3)
    assert Coverage(1.0, {}, {Group.COPY_SYNC: 0.5}).scaled([upper_bound]) == []
    assert Coverage(1.0, {}, {Group.LAUNCH: 0.5}).scaled([upper_bound]) == [upper_bound]


def test_a_waiting_job_keeps_its_speed_and_a_busy_job_is_slowed_by_its_probes() -> None:
    waiting, busy = SpeedRatio(), SpeedRatio()
    watched = Activity(0.1, own={JOB: 0.01}, probes={JOB: 0.02})
    assert waiting.scale(JOB, watched, Activity(1.0, own={JOB: 0.1}, probes={JOB: 0.02})) == pytest.approx(10)
    watched = Activity(0.1, own={JOB: 0.08}, probes={JOB: 0.02})
    assert busy.scale(JOB, watched, Activity(1.0, own={JOB: 0.98}, probes={JOB: 0.02})) == pytest.approx(
        10 * 0.98 / 0.8
    )


def test_impossible_cpu_times_do_not_change_the_speed() -> None:
    watched = Activity(0.1, own={JOB: 0.01}, probes={JOB: 0.02})
    assert SpeedRatio().scale(JOB, watched, Activity(1.0, own={JOB: 0.9}, probes={JOB: 0.02})) == pytest.approx(12.5)
    assert SpeedRatio().scale(JOB, watched, Activity(1.0, own={JOB: 0.01}, probes={JOB: 0.02})) == pytest.approx(10)
    assert SpeedRatio().scale(JOB, Activity(0.1), Activity(1.0)) == pytest.approx(10)
