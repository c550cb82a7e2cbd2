"""Steps beyond `max_steps`, merged: a time line of them has no holes, and shows the pauses that there were."""

from itertools import pairwise

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from opentelemetry.proto.trace.v1.trace_pb2 import Span

from otel_zernel_libraries.training.step_spans import MergedStepsSpan, step_of
from otel_zernel_libraries.training.steps import StepBar, bar_of
from tests.processors.phases.processing import dropped, feed, make
from tests.processors.phases.training import MS, Loop, attributes_of, batch_of, spans_of

LONGEST = 10 * MS
"""A hundredth of the interval."""


def shown(loop: Loop, most: int) -> tuple[list[StepBar], list[Span], dict[str, int]]:
    """The bars of all steps, the spans of merged ones, and what was dropped."""
    processor = make(traces={"sample": 1, "slowest": 0, "max_steps": most, "merge_rest": True})
    spans = spans_of(feed(processor, [batch_of(loop.spans)]))
    bars = [bar_of(step) for span in spans if (step := step_of(span))]
    merged = [span for span in spans if span.name == MergedStepsSpan.name]
    return sorted(bars, key=lambda bar: bar.start_ns), merged, dropped(processor)


def fast(loop: Loop, steps: int, forward: float = 0.5) -> Loop:
    """Adds steps of about 2 ms."""
    for _ in range(steps):
        loop.load(0.2).train(forward=forward, backward=0.2, optimizer=0.1, tail=0.0)
    return loop


@settings(max_examples=40, deadline=None)
@given(
    st.lists(st.tuples(st.integers(1, 20), st.floats(0.1, 3), st.floats(0, 30)), min_size=1, max_size=8),
    st.integers(1, 12),
)
def test_no_step_and_no_time_is_lost_at_any_limit(parts: list[tuple[int, float, float]], most: int) -> None:
    loop = Loop()
    for steps, forward, pause in parts:
        fast(loop, steps, forward).wait(pause)
    loop.load(0.1)
    all_of, _, _ = shown(loop, 10_000)
    bars, merged, lost = shown(loop, most)
    assert "max_steps" not in lost
    assert sum(bar.steps for bar in bars) == len(all_of)
    assert sum(sum(bar.phase_ns) for bar in bars) == pytest.approx(sum(sum(bar.phase_ns) for bar in all_of), abs=1000)
    assert max(bar.longest_ns for bar in bars) == pytest.approx(max(bar.longest_ns for bar in all_of), abs=1000)
    for span in merged:
        lasts = span.end_time_unix_nano - span.start_time_unix_nano
        assert lasts <= LONGEST or len(MergedStepsSpan.from_span(span).durations_ns) == 1


def test_fast_steps_fill_the_time_line_without_a_hole() -> None:
    bars, merged, _ = shown(fast(Loop(), 1000).load(0.1), 50)
    holes = [after.start_ns - before.end_ns for before, after in pairwise(bars)]
    assert max(holes) < LONGEST
    assert len(merged) < 250
    attributes = attributes_of(merged[0].attributes)
    assert attributes["process.pid"] == 42
    assert attributes["zernel.step.kind"] == "training"
    assert merged[0].parent_span_id == b""


def test_without_the_option_the_rest_is_dropped_and_counted() -> None:
    traces = {"sample": 1, "slowest": 0, "max_steps": 50}
    processor = make(interval="1h", window="1h", traces=traces)
    spans = spans_of(feed(processor, [batch_of(fast(Loop(), 100).load(0.1).spans)]))
    assert not [span for span in spans if span.name == MergedStepsSpan.name]
    assert dropped(processor)["max_steps"] > 0
