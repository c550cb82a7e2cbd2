"""A receiver may leave out whole short steps. They count like the others: sums, durations and causes stay the same."""

from collections.abc import Sequence

import pytest
from opentelemetry.proto.trace.v1.trace_pb2 import Span

from otel_zernel.batch import Batch
from tests.processors.phases.processing import feed, in_pieces, last, make
from tests.processors.phases.short_steps import fast_loop, without_some
from tests.processors.phases.training import START, attributes_of, metrics_of, spans_of, values_of


def run(spans: Sequence[Span], **settings: object) -> list[Batch]:
    return feed(make(**settings), in_pieces(list(spans), 500))


def times_of(batches: list[Batch]) -> dict[tuple[object, object], float]:
    """The last time (s) by position and activity."""
    values = values_of(batches, "zernel.ledger.time")
    return {(about["zernel.position"], about["zernel.activity"]): value for about, value in values}


@pytest.mark.parametrize("loads", [True, False])
def test_sums_and_durations_are_those_of_all_steps(loads: bool) -> None:
    spans = fast_loop(3_000, loads=loads).spans
    some = without_some(spans, "data_loading" if loads else "optimizer", every=4)
    assert len(some) < 0.3 * len(spans)
    whole, sampled = run(spans), run(some)
    every, times = times_of(whole), times_of(sampled)
    assert sum(times.values()) == pytest.approx(sum(every.values()), rel=0.001)
    for at, time in every.items():
        assert times.get(at, 0.0) == pytest.approx(time, abs=0.01 * sum(every.values())), at
    for name, wanted in {"zernel.steps": {"zernel_step_kind": "training"}, "zernel.step.events": {}}.items():
        assert last(sampled, name, **wanted) == pytest.approx(last(whole, name, **wanted), rel=0.01)
    means = []
    for made in (whole, sampled):
        points = [
            point for metric in metrics_of(made, "zernel.step.duration") for point in metric.histogram.data_points
        ]
        trained = [point for point in points if attributes_of(point.attributes)["zernel.step.kind"] == "training"]
        means.append(sum(one.sum for one in trained) / sum(one.count for one in trained))
        assert sum(one.count for one in trained) == last(made, "zernel.steps", zernel_step_kind="training")
    assert means[1] == pytest.approx(means[0], rel=0.02)
    skipped = last(sampled, "zernel.steps.skipped", zernel_step_kind="training")
    assert skipped == pytest.approx(0.75 * 3_000, rel=0.05)
    assert last(sampled, "zernel.steps.lossy", zernel_step_kind="training") == 0


@pytest.mark.parametrize("loads", [True, False])
def test_the_time_line_has_no_holes(loads: bool) -> None:
    loop = fast_loop(3_000, loads=loads)
    some = without_some(loop.spans, "data_loading" if loads else "optimizer", every=4)
    traces = {"max_steps": 1, "merge_rest": True, "sample": 1}
    steps = [span for span in spans_of(run(some, traces=traces)) if span.name in ("step", "steps")]
    steps.sort(key=lambda span: span.start_time_unix_nano)
    until = steps[0].start_time_unix_nano
    assert until - START < 1_000_000
    for span in steps:
        assert span.start_time_unix_nano - until < 30_000
        until = max(until, span.end_time_unix_nano)
    assert sum(len(_durations(span)) or 1 for span in steps) == pytest.approx(3_000, abs=3)


def _durations(span: Span) -> list[object]:
    arrays = (
        attribute.value.array_value.values for attribute in span.attributes if attribute.key == "zernel.step.durations"
    )
    return [value for values in arrays for value in values]


def test_causes_are_those_of_all_steps() -> None:
    spans = fast_loop(4_000).spans
    some = without_some(spans, "data_loading", every=4)
    whole, sampled = (
        {
            (about["zernel.cause"], about.get("zernel.position")): gain
            for about, gain in values_of(run(made), "zernel.cause.gain")
        }
        for made in (spans, some)
    )
    first = max(whole, key=whole.__getitem__)
    assert max(sampled, key=sampled.__getitem__) == first
    assert sampled[first] == pytest.approx(whole[first], rel=0.1)
