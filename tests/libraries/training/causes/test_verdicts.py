"""The verdicts that alerts match, by the first cause."""

from dataclasses import replace

import pytest

from otel_zernel_libraries.training.causes import (
    JOB_VERDICTS,
    VERDICTS,
    Cause,
    CauseName,
    JobAnswer,
    Unknown,
    lead_of,
    verdict_of,
    verdict_of_rank,
)
from otel_zernel_libraries.training.ledger import Activity

LOAD, PASS, OPTIMIZER, OTHER = "data_loading", "gpu_compute", "optimizer_step", "unknown"


def answer(*causes: tuple[CauseName, str, int | None]) -> JobAnswer:
    """An answer with causes by name, phase and rank."""
    named = tuple(
        Cause(cause=name, phase=phase, rank=rank, gain=0.01, gain_low=0.009, gain_high=0.011, share=0.1)
        for name, phase, rank in causes
    )
    return JobAnswer(step=0.1, steps=100, best=0.09, causes=named)


@pytest.mark.parametrize(
    ("first", "of_process", "of_job"),
    [
        ((CauseName.SEGMENT, LOAD, None), "input_bound", "input_bound"),
        ((CauseName.SEGMENT, PASS, None), "host_bound", "host_bound"),
        ((CauseName.SEGMENT, OPTIMIZER, None), "optimizer_bound", "optimizer_bound"),
        ((CauseName.SEGMENT, OTHER, None), "host_bound", "host_bound"),
        ((CauseName.WORKERS_SLOW, LOAD, None), "input_bound", "input_bound"),
        ((CauseName.PERIODIC, OTHER, None), "unstable", "unstable"),
        ((CauseName.EVALUATION, PASS, None), "host_bound", "host_bound"),
        ((CauseName.SLOW_LINK, "", None), "communication_bound", "slow_link"),
        ((CauseName.IMBALANCE, "", None), "communication_bound", "straggler"),
    ],
)
def test_the_first_cause_decides(first: tuple[CauseName, str, int | None], of_process: str, of_job: str) -> None:
    found = answer(first, (CauseName.GIL, PASS, None))
    assert (verdict_of_rank(found, 0), verdict_of(found)) == (of_process, of_job)


def test_the_others_of_a_late_rank_wait_for_it() -> None:
    late = answer((CauseName.STRAGGLER, LOAD, 1))
    assert verdict_of(late) == "straggler"
    assert [verdict_of_rank(late, rank) for rank in (0, 1, None)] == [
        "communication_bound",
        "input_bound",
        "communication_bound",
    ]


def test_a_late_rank_that_computes_longer_is_compute_bound() -> None:
    late = answer((CauseName.STRAGGLER, PASS, 1))
    for activity, verdict in ((Activity.OPERATOR, "compute_bound"), (Activity.PYTHON, "host_bound")):
        assert verdict_of_rank(replace(late, causes=(replace(late.causes[0], activity=activity),)), 1) == verdict


def test_waits_for_ranks_that_are_not_seen_come_first_if_they_are_longest() -> None:
    found = replace(answer((CauseName.SEGMENT, LOAD, None)), ranks_seen=1, ranks_expected=2, waits=0.02)
    assert (verdict_of(found), verdict_of_rank(found, 0), found.first) == ("communication_bound",) * 2 + (None,)
    assert lead_of(found).startswith(
        "Training waits for ranks that are not seen for 20.0 ms of each 100 ms step (20 %). "
    )
    assert verdict_of(replace(found, waits=0.009)) == "input_bound"
    assert verdict_of(replace(found, causes=(), waits=0.002)) == "compute_bound"


def test_no_cause_and_no_answer_are_two_verdicts() -> None:
    assert (verdict_of_rank(answer(), 0), verdict_of(answer())) == ("compute_bound", "compute_bound")
    assert (verdict_of_rank(None, 0), verdict_of(None)) == ("none", "none")


@pytest.mark.parametrize("reason", Unknown)
def test_an_answer_that_names_no_cause_says_why_and_is_no_verdict(reason: Unknown) -> None:
    unknown = replace(answer(), unknown=reason)
    assert (verdict_of_rank(unknown, 0), verdict_of(unknown)) == ("none", "none")
    assert lead_of(unknown).startswith("No cause can be named, because ")


@pytest.mark.parametrize("name", CauseName)
def test_every_cause_has_a_verdict_that_alerts_know(name: CauseName) -> None:
    for rank in (None, 0, 1):
        found = answer((name, OTHER, rank))
        assert verdict_of_rank(found, 0) in VERDICTS
        assert verdict_of(found) in JOB_VERDICTS
