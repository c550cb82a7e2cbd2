"""Steps of any content: segments follow each other, and the fast case equals the general one."""

from hypothesis import given
from hypothesis import strategies as st

from otel_zernel_libraries.training.interval_spans import Evidence
from otel_zernel_processors.phases.intake.intervals import RUNS, Operators, ThreadInterval
from otel_zernel_processors.phases.scopes.attribution import attribute
from otel_zernel_processors.phases.scopes.steps import Boundary, Step, StepKind
from otel_zernel_processors.phases.scopes.time_ranges import intersection, length, union
from tests.processors.phases.scopes.attributed import (
    BRIDGE,
    WAIT,
    attributed,
    interval,
)

KINDS = st.sampled_from(
    [
        *("data_loading", "backward", "optimizer", "zero_grad", "sync", "ddp", "user", "collective"),
        *("forward", "inference", "update"),
    ]
)
EVIDENCE = st.builds(Evidence, *(st.sampled_from([0, 1, 10**7, 10**10]) for _ in range(4)))
OPERATORS = st.builds(
    Operators,
    *(st.integers(0, 50), EVIDENCE, EVIDENCE),
    *(st.sampled_from([0, 1, 2, 7]), st.sampled_from([0, 10**6, 10**12])),
    *(st.sampled_from([(), (0, 5, 9, 10**9), (0, 0, 7, 7, 10**4, 65_535_000)]), st.booleans()),
)
TIMES = st.integers(-1000, 31_000_000)
KINDS_IN_A_ROW = ["data_loading", "backward", "optimizer", "zero_grad", "sync", "ddp", "user"]
INTERVALS = st.builds(
    lambda kind, name, at, until, flying, operators: ThreadInterval(
        max(at, until), min(at, until), 1, kind, name, flying, None, operators if kind in RUNS else None
    ),
    *(KINDS, st.sampled_from([WAIT, "cudaStreamSynchronize", "x::finalize_backward"]), TIMES, TIMES, st.booleans()),
    OPERATORS,
)
KINDS_OF_STEP = st.sampled_from(["training", "accumulation", "evaluation", "inference", "between", "unfinished"])
BOUNDARIES = st.sampled_from(["loader", "optimizer", "backward", ""])


@given(
    *(st.lists(INTERVALS, max_size=30), st.lists(st.tuples(TIMES, TIMES), max_size=5), KINDS_OF_STEP, st.booleans()),
    BOUNDARIES,
)
def test_the_segments_of_any_step_follow_each_other_from_its_start_to_its_end(
    intervals: list[ThreadInterval], flights: list[tuple[int, int]], kind: StepKind, lossy: bool, boundary: Boundary
) -> None:
    has_runs = any(interval.operators for interval in intervals)
    step = Step(
        0, 30_000_000, kind, intervals, losses=[(5, 20_000_000)] if lossy else [], boundary=boundary, has_runs=has_runs
    )
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
        intervals.append(interval(what, (at + gap) / 1000, (at + gap + lasts) / 1000))
        at += gap + lasts
    of_no_length = interval("data_loading", 0.007, 0.007)  # is ignored, but a step with it is not in a row
    assert attributed(intervals, kind=kind, lossy=lossy) == attributed(
        [*intervals, of_no_length], kind=kind, lossy=lossy
    )


SPANS = st.lists(st.tuples(st.integers(0, 60), st.integers(0, 60)), max_size=12)


@given(SPANS, SPANS)
def test_unions_and_intersections_agree_with_sets(left: list[tuple[int, int]], right: list[tuple[int, int]]) -> None:
    one, other = ({at for start, end in spans for at in range(start, end)} for spans in (left, right))
    assert length(union(left)) == len(one)
    assert length(intersection(union(left), union(right))) == len(one & other)
