"""The attribution of a step: every nanosecond belongs to one phase."""

import pytest

from otel_zernel_libraries.training.interval_spans import Evidence
from otel_zernel_processors.phases.intake.intervals import Operators, ThreadInterval
from otel_zernel_processors.phases.scopes.attribution import attribute
from otel_zernel_processors.phases.scopes.steps import Step
from tests.processors.phases.scopes.attributed import (
    BACKWARD,
    BRIDGE,
    LOAD,
    OPTIMIZER,
    US,
    WAIT,
    Row,
    attributed,
    interval,
    rows_of,
)

CASES: dict[str, tuple[list[ThreadInterval], list[tuple[int, int]], list[Row]]] = {
    "forward before backward, compute after it, unknown after the optimizer": (
        [BACKWARD, OPTIMIZER, LOAD],
        [],
        [
            ("forward", 0, 10_000),
            ("backward", 10_000, 18_000),
            ("clip", 18_000, 20_000),
            ("optimizer", 20_000, 23_000),
            ("after_step", 23_000, 25_000),
            ("load", 25_000, 30_000),
        ],
    ),
    "a wait for other ranks within backward is a collective": (
        [BACKWARD, interval("sync", 15_000, 17_000, WAIT), LOAD],
        [],
        [
            ("forward", 0, 10_000),
            ("backward", 10_000, 15_000),
            ("collective", 15_000, 17_000),
            ("backward", 17_000, 18_000),
            ("after_step", 18_000, 25_000),
            ("load", 25_000, 30_000),
        ],
    ),
    "DDP's finalize_backward is a wait": (
        [BACKWARD, interval("ddp", 16_000, 18_000, "c10d::Reducer::finalize_backward"), LOAD],
        [],
        [
            ("forward", 0, 10_000),
            ("backward", 10_000, 16_000),
            ("collective", 16_000, 18_000),
            ("after_step", 18_000, 25_000),
            ("load", 25_000, 30_000),
        ],
    ),
    "a CUDA sync is a collective only while one is in flight": (
        [BACKWARD, interval("sync", 19_000, 24_000, "cudaStreamSynchronize"), LOAD],
        [(12_000, 21_000)],
        [
            ("forward", 0, 10_000),
            ("backward", 10_000, 18_000),
            ("clip", 18_000, 19_000),
            ("collective", 19_000, 21_000),
            ("gpu_wait", 21_000, 24_000),
            ("after_step", 24_000, 25_000),
            ("load", 25_000, 30_000),
        ],
    ),
    "a sync within the loader is loading": (
        [interval("sync", 26_000, 27_000, "cudaStreamSynchronize"), LOAD, BACKWARD],
        [],
        [
            ("forward", 0, 10_000),
            ("backward", 10_000, 18_000),
            ("clip", 18_000, 25_000),
            ("load", 25_000, 30_000),
        ],
    ),
    "backward within an optimizer's closure is backward": (
        [interval("optimizer", 5_000, 24_900), BACKWARD, LOAD],
        [],
        [
            ("forward", 0, 5_000),
            ("optimizer", 5_000, 10_000),
            ("backward", 10_000, 18_000),
            ("optimizer", 18_000, 24_900),
            ("after_step", 24_900, 25_000),
            ("load", 25_000, 30_000),
        ],
    ),
    "a short gap between two scopes of one phase is bridged, a long one is not": (
        [BACKWARD, OPTIMIZER, interval("zero_grad", 23_300, 23_500), interval("zero_grad", 24_100, 24_200), LOAD],
        [],
        [
            ("forward", 0, 10_000),
            ("backward", 10_000, 18_000),
            ("clip", 18_000, 20_000),
            ("optimizer", 20_000, 23_300),
            ("zero_grad", 23_300, 23_500),
            ("after_step", 23_500, 24_100),
            ("zero_grad", 24_100, 24_200),
            ("after_step", 24_200, 25_000),
            ("load", 25_000, 30_000),
        ],
    ),
    "the call that enqueues a collective counts only without another activity": (
        [BACKWARD, interval("collective", 17_000, 19_000, "all_reduce"), interval("sync", 19_200, 21_000, WAIT), LOAD],
        [],
        [
            ("forward", 0, 10_000),
            ("backward", 10_000, 18_000),
            ("collective", 18_000, 21_000),
            ("after_step", 21_000, 25_000),
            ("load", 25_000, 30_000),
        ],
    ),
    "a wait for a collective that is too short for a span lasts from its enqueueing to its end": (
        [BACKWARD, interval("collective", 18_500, 18_600, "all_reduce"), OPTIMIZER, LOAD],
        [(18_500, 19_000)],
        [
            ("forward", 0, 10_000),
            ("backward", 10_000, 18_000),
            ("clip", 18_000, 18_500),
            ("collective", 18_500, 19_000),
            ("clip", 19_000, 20_000),
            ("optimizer", 20_000, 23_000),
            ("after_step", 23_000, 25_000),
            ("load", 25_000, 30_000),
        ],
    ),
    "a thread that does something else until a collective ends does not wait for it": (
        [interval("collective", 9_800, 9_900, "all_reduce"), BACKWARD, interval("sync", 18_100, 18_200), LOAD],
        [(9_800, 18_200)],
        [
            ("forward", 0, 9_800),
            ("collective", 9_800, 9_900),
            ("forward", 9_900, 10_000),
            ("backward", 10_000, 18_000),
            ("clip", 18_000, 18_100),
            ("collective", 18_100, 18_200),
            ("after_step", 18_200, 25_000),
            ("load", 25_000, 30_000),
        ],
    ),
    "the user's own regions are ignored": (
        [interval("user", 1_000, 29_000, "my step"), BACKWARD, LOAD],
        [],
        [
            ("forward", 0, 10_000),
            ("backward", 10_000, 18_000),
            ("after_step", 18_000, 25_000),
            ("load", 25_000, 30_000),
        ],
    ),
    "intervals are cut at the edges of the step": (
        [interval("backward", -5_000, 3_000), interval("data_loading", 28_000, 40_000)],
        [],
        [("backward", 0, 3_000), ("after_step", 3_000, 28_000), ("load", 28_000, 30_000)],
    ),
}


@pytest.mark.parametrize("case", CASES)
def test_precedence(case: str) -> None:
    intervals, flights, expected = CASES[case]
    assert attributed(intervals, flights) == expected


def test_an_evaluation_has_a_position_of_its_own() -> None:
    assert attributed([LOAD], kind="evaluation") == [("evaluation", 0, 25_000), ("load", 25_000, 30_000)]


def test_time_between_loops_has_a_position_of_its_own() -> None:
    assert attributed([LOAD], kind="between") == [("between", 0, 25_000), ("load", 25_000, 30_000)]


def test_if_events_were_lost_time_without_intervals_is_unknown() -> None:
    assert attributed([BACKWARD, LOAD], lossy=True) == [
        ("unknown", 0, 10_000),
        ("backward", 10_000, 18_000),
        ("unknown", 18_000, 25_000),
        ("load", 25_000, 30_000),
    ]


def test_the_hidden_part_of_a_collective_is_overlap() -> None:
    intervals = [BACKWARD, interval("sync", 19_000, 24_000, "cudaStreamSynchronize"), LOAD]
    attribution = attribute(Step(0, 30_000 * US, "training", intervals), [(12_000 * US, 21_000 * US)], BRIDGE)
    assert attribution.overlap_ns == 7_000 * US


def test_gaps_keep_their_activities_in_a_step_with_nested_scopes() -> None:
    gap = Evidence(blocked_ns=3_000 * US)
    intervals = [
        ThreadInterval(
            4_000 * US, 1_000 * US, 1, "inference", "", operators=Operators(3, parts=2, covered_ns=1_000 * US)
        ),
        ThreadInterval(12_000 * US, 8_000 * US, 1, "forward", "", operators=Operators(9, gap)),
        interval("zero_grad", 13_000, 14_000),
        interval("backward", 15_000, 20_000),
        interval("optimizer", 21_000, 30_000),
    ]
    step = Step(0, 30_000 * US, "training", intervals, boundary="optimizer", has_runs=True)
    segments = attribute(step, [], BRIDGE).segments
    assert rows_of(segments) == [
        ("after_step", 0, 992),
        ("inference", 992, 1_504),
        ("environment", 1_504, 3_492),
        ("inference", 3_492, 4_004),
        ("environment", 4_004, 5_000),
        ("load", 5_000, 8_000),
        ("forward", 8_000, 13_000),
        ("zero_grad", 13_000, 14_000),
        ("forward", 14_000, 15_000),
        ("backward", 15_000, 20_000),
        ("clip", 20_000, 21_000),
        ("optimizer", 21_000, 30_000),
    ]


def test_the_scope_that_began_last_wins() -> None:
    intervals = [
        interval("optimizer", 2_000, 24_000),
        ThreadInterval(9_000 * US, 5_000 * US, 1, "forward", "", operators=Operators(9)),
        interval("backward", 10_000, 20_000),
        interval("optimizer", 12_000, 14_000),
        interval("zero_grad", 14_000, 14_500),
        LOAD,
    ]
    step = Step(0, 30_000 * US, "training", intervals, has_runs=True)
    segments = attribute(step, [], BRIDGE).segments
    assert [(one.phase, one.moment.detail, one.start // US) for one in segments] == [
        ("gpu_compute", "forward", 0),
        ("optimizer_step", "step", 2_000),
        ("gpu_compute", "forward", 5_000),
        ("gpu_compute", "backward", 10_000),
        ("optimizer_step", "step", 12_000),
        ("optimizer_step", "zero_grad", 14_000),
        ("gpu_compute", "backward", 14_500),
        ("optimizer_step", "step", 20_000),
        ("unknown", "host", 24_000),
        ("data_loading", "loader", 25_000),
    ]
