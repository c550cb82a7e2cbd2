"""Verdicts at their thresholds, and how they stay."""

import pytest

from otel_zernel_processors.phases.config import VerdictConfig
from otel_zernel_processors.phases.results.ranks import JobVerdictTracker, compare
from otel_zernel_processors.phases.results.totals import PhaseTotals
from otel_zernel_processors.phases.results.verdict import VerdictTracker, verdict_of

LIMITS = VerdictConfig()
MS = 1_000_000


def tally(
    data: float = 0, nccl: float = 0, optimizer: float = 0, compute: float = 0, *, steps: int = 10, jitter: float = 0.0
) -> PhaseTotals:
    """The sums of `steps` steps of 100 ms, by shares; the rest is unknown."""
    whole = steps * 100 * MS
    shares = {"data_loading": data, "nccl_collective": nccl, "optimizer_step": optimizer, "gpu_compute": compute}
    made = PhaseTotals(duration_ns=whole, duration_squares=round(steps * (100 * MS) ** 2 * (1 + jitter**2)))
    made.phase_ns.update({phase: round(share * whole) for phase, share in shares.items()})
    made.phase_ns["unknown"] = whole - made.phase_ns.total()
    made.steps["training"] = steps
    return made


CASES = [
    ("data at its threshold", tally(data=0.2, compute=0.8), "input_bound"),
    ("data just below", tally(data=0.199, compute=0.801), "compute_bound"),
    ("collectives", tally(nccl=0.25, compute=0.75), "communication_bound"),
    ("the one furthest above", tally(data=0.25, nccl=0.35, compute=0.4), "communication_bound"),
    ("furthest above its own threshold", tally(data=0.25, optimizer=0.33, compute=0.42), "input_bound"),
    ("the optimizer", tally(optimizer=0.3, compute=0.7), "optimizer_bound"),
    ("jitter before computation", tally(compute=0.9, jitter=0.51), "unstable"),
    ("waiting before jitter", tally(data=0.3, compute=0.7, jitter=2.0), "input_bound"),
    ("little of all", tally(data=0.15, nccl=0.15, optimizer=0.2, compute=0.5), "none"),
    ("too few steps", tally(data=0.9, steps=2), "none"),
    ("no time at all", PhaseTotals(), "none"),
]


def test_ranks_whose_steps_take_no_time_are_not_compared() -> None:
    instant = PhaseTotals()
    instant.steps["training"] = 5
    assert compare({0: instant, 1: instant}, LIMITS, "none").name == "none"


@pytest.mark.parametrize(("sums", "verdict"), [case[1:] for case in CASES], ids=[case[0] for case in CASES])
def test_what_a_process_is_bound_by(sums: PhaseTotals, verdict: str) -> None:
    assert verdict_of(sums, LIMITS, "none").name == verdict


def test_a_verdict_stands_until_it_is_clearly_over() -> None:
    one = VerdictTracker(LIMITS)
    changes = [one.update(tally(data=data, compute=1 - data)) for data in (0.21, 0.21, 0.19, 0.19, 0.17, 0.17)]
    assert changes == [False, True, False, False, False, True]
    assert one.verdict.name == "compute_bound"
    assert one.verdict.evidence["input_bound"] == pytest.approx(0.17)


JOBS = [
    ("a late rank waits least", {0: 0.3, 1: 0.05, 2: 0.3}, "straggler", 1),
    ("a slow link makes all wait", {0: 0.3, 1: 0.28, 2: 0.3}, "slow_link", None),
    ("late by less than it matters", {0: 0.14, 1: 0.05, 2: 0.1}, "balanced", None),
    ("both: what is more", {0: 0.9, 1: 0.25, 2: 0.8}, "straggler", 1),
    ("both: the link", {0: 0.6, 1: 0.48, 2: 0.55}, "slow_link", None),
    ("one rank alone", {0: 0.5}, "none", None),
]


@pytest.mark.parametrize(("waits", "verdict", "rank"), [case[1:] for case in JOBS], ids=[case[0] for case in JOBS])
def test_a_late_rank_is_told_from_a_slow_link(waits: dict[int, float], verdict: str, rank: int | None) -> None:
    found = compare({number: tally(nccl=wait, compute=1 - wait) for number, wait in waits.items()}, LIMITS, "none")
    assert (found.name, found.straggler) == (verdict, rank)


def test_lateness_and_transfer_are_those_of_a_mean_step() -> None:
    found = compare({0: tally(nccl=0.3), 1: tally(nccl=0.05)}, LIMITS, "none")
    assert found.lateness_s == pytest.approx({0: 0.0, 1: 0.025})
    assert (found.transfer_s, found.step_s) == pytest.approx((0.005, 0.1))


def test_a_jobs_verdict_needs_two_intervals() -> None:
    one, late = JobVerdictTracker(LIMITS), {0: tally(nccl=0.3), 1: tally(nccl=0.05)}
    assert [one.update(late), one.update(late), one.update(late)] == [False, True, False]
    assert one.verdict.straggler == 1


@pytest.mark.parametrize(
    ("sums", "missing", "verdict"),
    [
        (PhaseTotals(), {"scopes"}, "marks_missing"),
        (tally(data=0.1), {"backward"}, "marks_missing"),
        (tally(data=0.3), {"backward"}, "input_bound"),
        (tally(compute=0.9), {"ddp_wait"}, "compute_bound"),
        (tally(data=0.1), {"ddp_wait", "collective_wait"}, "none"),
        (tally(data=0.1), set(), "none"),
    ],
)
def test_where_nothing_can_be_judged_for_want_of_marks_the_verdict_says_so(
    sums: PhaseTotals, missing: set[str], verdict: str
) -> None:
    one = VerdictTracker(LIMITS)
    for _ in range(LIMITS.stability):
        one.update(sums, missing)
    assert one.verdict.name == verdict
