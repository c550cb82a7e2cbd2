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
    WAIT,
    attributed,
    interval,
    text_of,
)
from tests.processors.phases.training import MS

CASES: dict[str, tuple[list[ThreadInterval], list[tuple[float, float]], str]] = {
    "forward before backward, compute after it, unknown after the optimizer": (
        [BACKWARD, OPTIMIZER, LOAD],
        [],
        "forward 10, backward 18, clip 20, optimizer 23, after_step 25, load 30",
    ),
    "a wait for other ranks within backward is a collective": (
        [BACKWARD, interval("sync", 15, 17, WAIT), LOAD],
        [],
        "forward 10, backward 15, collective 17, backward 18, after_step 25, load 30",
    ),
    "DDP's finalize_backward is a wait": (
        [BACKWARD, interval("ddp", 16, 18, "c10d::Reducer::finalize_backward"), LOAD],
        [],
        "forward 10, backward 16, collective 18, after_step 25, load 30",
    ),
    "a CUDA sync is a collective only while one is in flight": (
        [BACKWARD, interval("sync", 19, 24, "cudaStreamSynchronize"), LOAD],
        [(12, 21)],
        "forward 10, backward 18, clip 19, collective 21, gpu_wait 24, after_step 25, load 30",
    ),
    "a sync within the loader is loading": (
        [interval("sync", 26, 27, "cudaStreamSynchronize"), LOAD, BACKWARD],
        [],
        "forward 10, backward 18, clip 25, load 30",
    ),
    "backward within an optimizer's closure is backward": (
        [interval("optimizer", 5, 24.9), BACKWARD, LOAD],
        [],
        "forward 5, optimizer 10, backward 18, optimizer 24.9, after_step 25, load 30",
    ),
    "a short gap between two scopes of one phase is bridged, a long one is not": (
        [BACKWARD, OPTIMIZER, interval("zero_grad", 23.3, 23.5), interval("zero_grad", 24.1, 24.2), LOAD],
        [],
        (
            "forward 10, backward 18, clip 20, optimizer 23.3, zero_grad 23.5, after_step 24.1, zero_grad 24.2, "
            "after_step 25, load 30"
        ),
    ),
    "the call that enqueues a collective counts only without another activity": (
        [BACKWARD, interval("collective", 17, 19, "all_reduce"), interval("sync", 19.2, 21, WAIT), LOAD],
        [],
        "forward 10, backward 18, collective 21, after_step 25, load 30",
    ),
    "a wait for a collective that is too short for a span lasts from its enqueueing to its end": (
        [BACKWARD, interval("collective", 18.5, 18.6, "all_reduce"), OPTIMIZER, LOAD],
        [(18.5, 19)],
        "forward 10, backward 18, clip 18.5, collective 19, clip 20, optimizer 23, after_step 25, load 30",
    ),
    "a thread that does something else until a collective ends does not wait for it": (
        [interval("collective", 9.8, 9.9, "all_reduce"), BACKWARD, interval("sync", 18.1, 18.2), LOAD],
        [(9.8, 18.2)],
        "forward 9.8, collective 9.9, forward 10, backward 18, clip 18.1, collective 18.2, after_step 25, load 30",
    ),
    "the user's own regions are ignored": (
        [interval("user", 1, 29, "my step"), BACKWARD, LOAD],
        [],
        "forward 10, backward 18, after_step 25, load 30",
    ),
    "intervals are cut at the edges of the step": (
        [interval("backward", -5, 3), interval("data_loading", 28, 40)],
        [],
        "backward 3, after_step 28, load 30",
    ),
}


@pytest.mark.parametrize("case", CASES)
def test_precedence(case: str) -> None:
    intervals, flights, expected = CASES[case]
    assert attributed(intervals, flights) == expected


def test_an_evaluation_has_a_position_of_its_own() -> None:
    assert attributed([LOAD], kind="evaluation") == "evaluation 25, load 30"


def test_time_between_loops_has_a_position_of_its_own() -> None:
    assert attributed([LOAD], kind="between") == "between 25, load 30"


def test_if_events_were_lost_time_without_intervals_is_unknown() -> None:
    assert attributed([BACKWARD, LOAD], lossy=True) == "unknown 10, backward 18, unknown 25, load 30"


def test_gaps_keep_their_activities_in_a_step_with_nested_scopes() -> None:
    parts = Operators(3, parts=2, covered_ns=1 * MS)
    intervals = [
        interval("inference", 1, 4)._replace(operators=parts),
        interval("forward", 8, 12)._replace(operators=Operators(9, Evidence(blocked_ns=3 * MS))),
        interval("zero_grad", 13, 14),
        interval("backward", 15, 20),
        interval("optimizer", 21, 30),
    ]
    step = Step(0, 30 * MS, "training", intervals, boundary="optimizer", has_runs=True)
    assert text_of(attribute(step, [], BRIDGE).segments) == (
        "after_step 0.992, inference 1.504, environment 3.492, inference 4.004, environment 5, load 8, forward 13, "
        "zero_grad 14, forward 15, backward 20, clip 21, optimizer 30"
    )


def test_the_scope_that_began_last_wins() -> None:
    intervals = [
        interval("optimizer", 2, 24),
        interval("forward", 5, 9)._replace(operators=Operators(9)),
        interval("backward", 10, 20),
        interval("optimizer", 12, 14),
        interval("zero_grad", 14, 14.5),
        LOAD,
    ]
    step = Step(0, 30 * MS, "training", intervals, has_runs=True)
    assert text_of(attribute(step, [], BRIDGE).segments) == (
        "forward 2, optimizer 5, forward 10, backward 12, optimizer 14, zero_grad 14.5, backward 20, optimizer 24, "
        "after_step 25, load 30"
    )
