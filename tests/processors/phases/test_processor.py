"""The whole path: from spans and points of training processes to their phases."""

from itertools import pairwise

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from opentelemetry.proto.trace.v1.trace_pb2 import Span

from otel_zernel.batch import Batch
from otel_zernel.testing import make_context
from otel_zernel_processors.percentiles import PercentilesProcessor
from tests.processors.phases.processing import in_pieces, last, make, phases_of, run, state
from tests.processors.phases.training import (
    MS,
    START,
    Loop,
    attributes_of,
    batch_of,
    gauge_batch,
    metrics_of,
    resource_of,
    spans_of,
    values_of,
)


def test_every_nanosecond_of_a_step_has_its_phase() -> None:
    made = run(batch_of(Loop().steps(100).load().spans))
    expected = {"data_loading": 505, "gpu_compute": 2200, "optimizer_step": 500, "unknown": 10}
    assert phases_of(made) == pytest.approx(expected)
    assert last(made, "zernel.steps", zernel_step_kind="training") == 100
    assert {str(one["zernel.phase.source"]) for one, _ in values_of(made, "zernel.phase.time")} == {"scopes"}


def test_sums_only_grow_and_reports_are_made_at_whole_intervals() -> None:
    made = run(*in_pieces(Loop().steps(200).load().spans))
    points = [point for metric in metrics_of(made, "zernel.phase.time") for point in metric.sum.data_points]
    of_gpu = [p for p in points if attributes_of(p.attributes)["zernel.phase"] == "gpu_compute"]
    assert len(of_gpu) == 5
    assert all(one.as_double <= other.as_double for one, other in pairwise(of_gpu))
    assert all(point.time_unix_nano % (1000 * MS) == 0 for point in of_gpu[:-1])


def test_fractions_cover_the_window() -> None:
    loop = Loop().steps(100, forward=1, backward=2, optimizer=1, tail=0)
    loop.steps(200, forward=20, backward=30, optimizer=4, tail=0)
    made = run(batch_of(loop.load().spans), window="5s")
    assert last(made, "zernel.phase.fraction", zernel_phase="gpu_compute") == pytest.approx(50 / 60, rel=0.02)
    assert last(made, "zernel.step.rate") == pytest.approx(1000 / 60, rel=0.02)


def test_without_a_closed_step_in_the_window_there_are_no_fractions() -> None:
    loop = Loop().do("user", 1).wait(4000).steps(50).load()
    processor, later = make(window="2s"), gauge_batch("hw.power", [(12_000, 100.0), (20_000, 100.0)])
    made = [out for batch in (batch_of(loop.spans), later) for out in processor.process(batch)]
    shares: dict[int, list[float | None]] = {}
    for point in (point for metric in metrics_of(made, "zernel.phase.fraction") for point in metric.gauge.data_points):
        second = (point.time_unix_nano - START) // (1000 * MS)
        shares.setdefault(second, []).append(None if point.flags else point.as_double)
    assert list(shares) == [5, 6, 7, 8]
    assert [sum(value or 0.0 for value in shares[second]) for second in (5, 6, 7)] == pytest.approx([1.0] * 3)
    assert shares[8] == [None] * 5
    assert state(made, "zernel.verdict") == "none"


def batches_of(made: list[Batch]) -> tuple[bytes, bytes]:
    return b"".join(one.bytes_of("metrics") for one in made), b"".join(one.bytes_of("traces") for one in made)


LOOP = Loop().steps(40).load(0.03).wait(200).steps(40).load()


WHOLE = batches_of(run(*in_pieces(LOOP.spans)))


@settings(deadline=None, max_examples=20)
@given(st.integers(1, 400))
def test_the_output_is_the_same_for_any_size_of_batches(size: int) -> None:
    assert batches_of(run(*in_pieces(LOOP.spans, size))) == WHOLE


def test_durations_are_exact_and_link_to_traces() -> None:
    made = run(batch_of(Loop().steps(30).steps(1, forward=100).load().spans), traces={"sample": 10})
    points = [p for metric in metrics_of(made, "zernel.step.duration") for p in metric.histogram.data_points]
    training = [p for p in points if attributes_of(p.attributes)["zernel.step.kind"] == "training"]
    assert sum(point.count for point in training) == 31
    assert max(point.max for point in training) == 0.1221
    assert all(sum(point.bucket_counts) == point.count for point in points)
    exemplars = {exemplar.trace_id for point in points for exemplar in point.exemplars}
    assert exemplars == {span.trace_id for span in spans_of(made)}
    assert any(exemplar.as_double == 0.1221 for point in training for exemplar in point.exemplars)


def test_percentiles_of_step_durations_are_those_of_the_steps() -> None:
    loop = Loop()
    for number in range(1, 101):
        loop.steps(1, forward=number)
    options = {"metrics": ["zernel.step.duration"], "outputs": ["summary"], "suffix": "", "quantiles": [0.5, 0.99]}
    config = PercentilesProcessor.Config.model_validate(options)
    percentiles = PercentilesProcessor(config, make_context("processors", "percentiles"))
    for batch in run(batch_of(loop.load().spans)):
        list(percentiles.process(batch))
    summaries = [
        point
        for metric in metrics_of(percentiles.flush(), "zernel.step.duration")
        for point in metric.summary.data_points
        if attributes_of(point.attributes)["zernel.step.kind"] == "training"
    ]
    quantiles = {quantile_value.quantile: quantile_value.value for quantile_value in summaries[-1].quantile_values}
    durations = {0.5: 0.0721, 0.99: 0.1211, 1.0: 0.1221}  # 22.1 ms plus the forward pass
    assert {quantile: quantiles[quantile] for quantile in durations} == pytest.approx(durations, rel=1e-3)


def test_other_spans_and_all_metrics_pass() -> None:
    foreign = batch_of([Span(name="request")])
    foreign.edit_spans().resource_spans[0].scope_spans[0].scope.name = "my.app"
    assert run(foreign)[0].count_of("traces") == 1
    assert run(gauge_batch("hw.power", [(0, 100.0)]))[0].point_count == 1
    mine = batch_of(Loop().steps(3).spans)
    assert run(mine, traces=None)[0].count_of("traces") == 0
    passed = run(batch_of(Loop().steps(3).spans), traces=None, pass_through=True)
    assert sum(batch.count_of("traces") for batch in passed) == 12


def test_transitions_and_epochs_are_emitted() -> None:
    loop = Loop().steps(50).load(0.03).wait(200).steps(50).load()
    made = run(batch_of(loop.spans))
    assert last(made, "zernel.epochs") == 1
    assert last(made, "zernel.steps", zernel_step_kind="between") == 2
    changes = 5  # a step passes through: compute, optimizer, unknown, loading; the first load comes from unknown
    assert last(made, "zernel.phase.transitions") == pytest.approx(100 * (changes - 1), abs=changes)


def test_a_host_has_the_tasks_and_the_time_of_each_phase() -> None:
    idle = gauge_batch("zernel.process.io.wait", [(at, 0.0) for at in range(0, 3000, 100)], process_pid=7)
    loops = (batch_of(Loop().steps(200).load().spans, resource_of(pid)) for pid in (1, 2))
    processor = make()
    made = [
        out
        for batch in (Batch.join([idle, *loops]), gauge_batch("hw.power", [(9000, 1.0)], zernel_gpu_index=0))
        for out in processor.process(batch)
    ]
    tasks = values_of(made, "zernel.scheduler.tasks")
    assert {str(one["type"]): value for one, value in tasks} == {"total": 3, "ml": 2}
    phases = values_of(made, "zernel.scheduler.phase.tasks")[-5:]
    assert sum(value for _, value in phases) == 2
    shares = {str(one["phase"]): value for one, value in values_of(made, "zernel.scheduler.phase.time_pct")}
    assert sum(shares.values()) == pytest.approx(100)
    assert shares["gpu_compute"] == pytest.approx(100 * 2200 / 3215, rel=0.01)
    whole = sum(last(made, "zernel.phase.transitions", process_pid=pid) for pid in (1, 2, 7))
    assert last(made, "zernel.scheduler.phase.transitions") == whole


def test_an_interval_without_steps_has_no_durations() -> None:
    late = gauge_batch("hw.power", [(9000, 1.0)], zernel_gpu_index=0)
    made = run(batch_of(Loop().steps(10).load().spans), late)
    assert all(metric.histogram.data_points for metric in metrics_of(made, "zernel.step.duration"))
