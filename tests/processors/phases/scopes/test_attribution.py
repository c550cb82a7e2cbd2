"""The attribution of a step: every nanosecond belongs to one phase."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from otel_zernel_processors.phases.intake.intervals import ThreadInterval
from otel_zernel_processors.phases.scopes.attribution import attribute
from otel_zernel_processors.phases.scopes.steps import Step, StepKind
from otel_zernel_processors.phases.scopes.time_ranges import intersection, length, union

US = 1000
BRIDGE = 500 * US

Row = tuple[str, int, int]
"""An activity, its start and its end in us."""


def interval(kind: str, start: int, end: int, name: str = "", *, in_flight: bool = False) -> ThreadInterval:
    return ThreadInterval(end * US, start * US, 1, kind, name or kind, in_flight)


def attributed(
    intervals: list[ThreadInterval], flights: list[tuple[int, int]] | None = None, **step: object
) -> list[Row]:
    """The segments of a step of 30 ms, in us."""
    kind: StepKind = step.get("kind", "training")  # type: ignore[assignment]  # the tests pass kinds
    whole = Step(0, 30_000 * US, kind, intervals, lossy=bool(step.get("lossy")))
    attribution = attribute(whole, [(start * US, end * US) for start, end in flights or []], BRIDGE)
    return [(segment.activity, segment.start // US, segment.end // US) for segment in attribution.segments]


LOAD = interval("data_loading", 25_000, 30_000)
BACKWARD = interval("backward", 10_000, 18_000)
OPTIMIZER = interval("optimizer", 20_000, 23_000)
WAIT = "c10d::Work::wait"

CASES: dict[str, tuple[list[ThreadInterval], list[tuple[int, int]], list[Row]]] = {
    "forward before backward, compute after it, unknown after the optimizer": (
        [BACKWARD, OPTIMIZER, LOAD],
        [],
        [
            ("forward", 0, 10_000),
            ("backward", 10_000, 18_000),
            ("compute", 18_000, 20_000),
            ("optimizer", 20_000, 23_000),
            ("unknown", 23_000, 25_000),
            ("data_loading", 25_000, 30_000),
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
            ("unknown", 18_000, 25_000),
            ("data_loading", 25_000, 30_000),
        ],
    ),
    "DDP's finalize_backward is a wait": (
        [BACKWARD, interval("ddp", 16_000, 18_000, "c10d::Reducer::finalize_backward"), LOAD],
        [],
        [
            ("forward", 0, 10_000),
            ("backward", 10_000, 16_000),
            ("collective", 16_000, 18_000),
            ("unknown", 18_000, 25_000),
            ("data_loading", 25_000, 30_000),
        ],
    ),
    "a CUDA sync is a collective only while one is in flight": (
        [BACKWARD, interval("sync", 19_000, 24_000, "cudaStreamSynchronize"), LOAD],
        [(12_000, 21_000)],
        [
            ("forward", 0, 10_000),
            ("backward", 10_000, 18_000),
            ("compute", 18_000, 19_000),
            ("collective", 19_000, 21_000),
            ("sync", 21_000, 24_000),
            ("unknown", 24_000, 25_000),
            ("data_loading", 25_000, 30_000),
        ],
    ),
    "a sync within the loader is loading": (
        [interval("sync", 26_000, 27_000, "cudaStreamSynchronize"), LOAD, BACKWARD],
        [],
        [
            ("forward", 0, 10_000),
            ("backward", 10_000, 18_000),
            ("compute", 18_000, 25_000),
            ("data_loading", 25_000, 30_000),
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
            ("unknown", 24_900, 25_000),
            ("data_loading", 25_000, 30_000),
        ],
    ),
    "a short gap between two scopes of one phase is bridged, a long one is not": (
        [BACKWARD, OPTIMIZER, interval("zero_grad", 23_300, 23_500), interval("zero_grad", 24_100, 24_200), LOAD],
        [],
        [
            ("forward", 0, 10_000),
            ("backward", 10_000, 18_000),
            ("compute", 18_000, 20_000),
            ("optimizer", 20_000, 23_300),
            ("zero_grad", 23_300, 23_500),
            ("compute", 23_500, 24_100),
            ("zero_grad", 24_100, 24_200),
            ("unknown", 24_200, 25_000),
            ("data_loading", 25_000, 30_000),
        ],
    ),
    "the call that enqueues a collective counts only without another activity": (
        [BACKWARD, interval("collective", 17_000, 19_000, "all_reduce"), interval("sync", 19_200, 21_000, WAIT), LOAD],
        [],
        [
            ("forward", 0, 10_000),
            ("backward", 10_000, 18_000),
            ("enqueue", 18_000, 19_200),
            ("collective", 19_200, 21_000),
            ("unknown", 21_000, 25_000),
            ("data_loading", 25_000, 30_000),
        ],
    ),
    "the user's own regions are ignored": (
        [interval("user", 1_000, 29_000, "my step"), BACKWARD, LOAD],
        [],
        [
            ("forward", 0, 10_000),
            ("backward", 10_000, 18_000),
            ("unknown", 18_000, 25_000),
            ("data_loading", 25_000, 30_000),
        ],
    ),
    "intervals are cut at the edges of the step": (
        [interval("backward", -5_000, 3_000), interval("data_loading", 28_000, 40_000)],
        [],
        [("backward", 0, 3_000), ("unknown", 3_000, 28_000), ("data_loading", 28_000, 30_000)],
    ),
}


@pytest.mark.parametrize("case", CASES)
def test_precedence(case: str) -> None:
    intervals, flights, expected = CASES[case]
    assert attributed(intervals, flights) == expected


def test_evaluation_is_forward_throughout() -> None:
    assert attributed([LOAD], kind="evaluation") == [("forward", 0, 25_000), ("data_loading", 25_000, 30_000)]


def test_time_between_loops_is_unknown() -> None:
    assert attributed([LOAD], kind="between") == [("unknown", 0, 25_000), ("data_loading", 25_000, 30_000)]


def test_if_events_were_lost_time_without_intervals_is_unknown() -> None:
    assert attributed([BACKWARD, LOAD], lossy=True) == [
        ("unknown", 0, 10_000),
        ("backward", 10_000, 18_000),
        ("unknown", 18_000, 25_000),
        ("data_loading", 25_000, 30_000),
    ]


def test_the_hidden_part_of_a_collective_is_overlap() -> None:
    intervals = [BACKWARD, interval("sync", 19_000, 24_000, "cudaStreamSynchronize"), LOAD]
    attribution = attribute(Step(0, 30_000 * US, "training", intervals), [(12_000 * US, 21_000 * US)], BRIDGE)
    assert attribution.overlap_ns == 7_000 * US


KINDS = st.sampled_from(["data_loading", "backward", "optimizer", "zero_grad", "sync", "ddp", "user", "collective"])
TIMES = st.integers(-1000, 31_000_000)
KINDS_IN_A_ROW = ["data_loading", "backward", "optimizer", "zero_grad", "sync", "ddp", "user"]
INTERVALS = st.builds(
    lambda kind, name, one, other, flying: ThreadInterval(max(one, other), min(one, other), 1, kind, name, flying),
    *(KINDS, st.sampled_from([WAIT, "cudaStreamSynchronize", "x::finalize_backward"]), TIMES, TIMES, st.booleans()),
)
KINDS_OF_STEP = st.sampled_from(["training", "accumulation", "evaluation", "between", "unfinished"])


@given(st.lists(INTERVALS, max_size=30), st.lists(st.tuples(TIMES, TIMES), max_size=5), KINDS_OF_STEP, st.booleans())
def test_the_segments_of_any_step_follow_each_other_from_its_start_to_its_end(
    intervals: list[ThreadInterval], flights: list[tuple[int, int]], kind: StepKind, lossy: bool
) -> None:
    step = Step(0, 30_000_000, kind, intervals, lossy=lossy)
    attribution = attribute(step, flights, BRIDGE)
    edges = [0, *(segment.end for segment in attribution.segments)]
    assert [segment.start for segment in attribution.segments] == edges[:-1]
    assert edges[-1] == 30_000_000
    assert all(segment.end > segment.start for segment in attribution.segments)
    assert 0 <= attribution.overlap_ns <= 30_000_000


ORDERED = st.lists(st.tuples(st.sampled_from(KINDS_IN_A_ROW), st.integers(0, 300), st.integers(1, 2_000)), max_size=20)


@given(ORDERED, KINDS_OF_STEP, st.booleans())
def test_intervals_in_a_row_give_the_same_as_the_general_case(
    rows: list[tuple[str, int, int]], kind: StepKind, lossy: bool
) -> None:
    intervals, at = [], 0
    for what, gap, lasts in rows:
        intervals.append(interval(what, at + gap, at + gap + lasts))
        at += gap + lasts
    of_no_length = interval("data_loading", 7, 7)  # is ignored, but a step with it is not in a row
    assert attributed(intervals, kind=kind, lossy=lossy) == attributed(
        [*intervals, of_no_length], kind=kind, lossy=lossy
    )


SPANS = st.lists(st.tuples(st.integers(0, 60), st.integers(0, 60)), max_size=12)


@given(SPANS, SPANS)
def test_unions_and_intersections_agree_with_sets(left: list[tuple[int, int]], right: list[tuple[int, int]]) -> None:
    one, other = ({at for start, end in spans for at in range(start, end)} for spans in (left, right))
    assert length(union(left)) == len(one)
    assert length(intersection(union(left), union(right))) == len(one & other)
