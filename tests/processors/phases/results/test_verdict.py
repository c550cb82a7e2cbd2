"""Verdicts at their thresholds, and their stability."""

import pytest

from otel_zernel_processors.phases.config import VerdictConfig
from otel_zernel_processors.phases.results.ranks import JobVerdictTracker, compare
from otel_zernel_processors.phases.results.totals import PhaseTotals
from otel_zernel_processors.phases.results.verdict import VerdictTracker, verdict_of

LIMITS = VerdictConfig()
MS = 1_000_000


def totals(
    data: float = 0,
    nccl: float = 0,
    optimizer: float = 0,
    compute: float = 0,
    *,
    host: float = 0,
    steps: int = 10,
    jitter: float = 0.0,
) -> PhaseTotals:
    """The sums of `steps` steps of 100 ms, by shares; the rest is unknown."""
    whole = steps * 100 * MS
    shares = {"data_loading": data, "nccl_collective": nccl, "optimizer_step": optimizer, "gpu_compute": compute}
    made = PhaseTotals(duration_ns=whole, duration_squares=round(steps * (100 * MS) ** 2 * (1 + jitter**2)))
    made.phase_ns.update({phase: round(share * whole) for phase, share in shares.items()})
    made.phase_ns["unknown"] = whole - made.phase_ns.total()
    made.host_ns = round(host * whole)
    made.steps["training"] = steps
    return made


CASES = [
    ("data at its threshold", totals(data=0.2, compute=0.8), "input_bound"),
    ("data just below", totals(data=0.199, compute=0.801), "compute_bound"),
    ("collectives", totals(nccl=0.25, compute=0.75), "communication_bound"),
    ("the one furthest above", totals(data=0.25, nccl=0.35, compute=0.4), "communication_bound"),
    ("furthest above its own threshold", totals(data=0.25, optimizer=0.33, compute=0.42), "input_bound"),
    ("the optimizer", totals(optimizer=0.3, compute=0.7), "optimizer_bound"),
    ("jitter before computation", totals(compute=0.9, jitter=0.51), "unstable"),
    ("waiting before jitter", totals(data=0.3, compute=0.7, jitter=2.0), "input_bound"),
    ("other code", totals(compute=0.69, host=0.31), "host_bound"),
    ("time that is unknown for another reason", totals(compute=0.69), "none"),
    ("little of all", totals(data=0.15, nccl=0.15, optimizer=0.2, compute=0.5), "none"),
    ("too few steps", totals(data=0.9, steps=2), "none"),
    ("no time at all", PhaseTotals(), "none"),
]


def test_ranks_with_steps_of_no_length_are_not_compared() -> None:
    instant = PhaseTotals()
    instant.steps["training"] = 5
    assert compare({0: instant, 1: instant}, LIMITS, "none").name == "none"


@pytest.mark.parametrize(("sums", "verdict"), [case[1:] for case in CASES], ids=[case[0] for case in CASES])
def test_the_verdict_on_a_process(sums: PhaseTotals, verdict: str) -> None:
    assert verdict_of(sums, LIMITS, "none").name == verdict


def test_a_verdict_stands_until_its_value_is_below_the_margin() -> None:
    one = VerdictTracker(LIMITS)
    changes = [one.update(totals(data=data, compute=1 - data)) for data in (0.21, 0.21, 0.19, 0.19, 0.17, 0.17)]
    assert changes == [False, True, False, False, False, True]
    assert one.verdict.name == "compute_bound"
    assert one.verdict.evidence["input_bound"] == pytest.approx(0.17)


JOBS = [
    ("a late rank waits least", {0: 0.3, 1: 0.05, 2: 0.3}, "straggler", 1),
    ("a slow link makes all wait", {0: 0.3, 1: 0.28, 2: 0.3}, "slow_link", None),
    ("late by less than the threshold", {0: 0.14, 1: 0.05, 2: 0.1}, "balanced", None),
    ("both: the straggler", {0: 0.9, 1: 0.25, 2: 0.8}, "straggler", 1),
    ("both: the link", {0: 0.6, 1: 0.48, 2: 0.55}, "slow_link", None),
    ("one rank alone", {0: 0.5}, "none", None),
]


@pytest.mark.parametrize(("waits", "verdict", "rank"), [case[1:] for case in JOBS], ids=[case[0] for case in JOBS])
def test_a_late_rank_differs_from_a_slow_link(waits: dict[int, float], verdict: str, rank: int | None) -> None:
    found = compare({number: totals(nccl=wait, compute=1 - wait) for number, wait in waits.items()}, LIMITS, "none")
    assert (found.name, found.straggler) == (verdict, rank)


def test_lateness_and_transfer_are_per_mean_step() -> None:
    found = compare({0: totals(nccl=0.3), 1: totals(nccl=0.05)}, LIMITS, "none")
    assert found.lateness_s == pytest.approx({0: 0.0, 1: 0.025})
    assert (found.transfer_s, found.step_s) == pytest.approx((0.005, 0.1))


def test_a_jobs_verdict_needs_two_intervals() -> None:
    one, late = JobVerdictTracker(LIMITS), {0: totals(nccl=0.3), 1: totals(nccl=0.05)}
    assert [one.update(late), one.update(late), one.update(late)] == [False, True, False]
    assert one.verdict.straggler == 1


@pytest.mark.parametrize(
    ("sums", "missing", "verdict"),
    [
        (PhaseTotals(), {"scopes"}, "marks_missing"),
        (totals(data=0.1), {"backward"}, "marks_missing"),
        (totals(data=0.3), {"backward"}, "input_bound"),
        (totals(compute=0.9), {"ddp_wait"}, "compute_bound"),
        (totals(data=0.1), {"ddp_wait", "collective_wait"}, "none"),
        (totals(data=0.1), set(), "none"),
    ],
)
def test_missing_marks_are_the_verdict_if_no_other_applies(sums: PhaseTotals, missing: set[str], verdict: str) -> None:
    one = VerdictTracker(LIMITS)
    for _ in range(LIMITS.stability):
        one.update(sums, missing)
    assert one.verdict.name == verdict
