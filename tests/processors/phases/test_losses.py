"""Data that is lost, late or beyond the limits: its time is unknown, and it is counted."""

from collections import Counter
from collections.abc import Iterator

import pytest
from opentelemetry.proto.metrics.v1.metrics_pb2 import AggregationTemporality

from otel_zernel.batch import Batch
from tests.processors.phases.processing import dropped, feed, last, make, phases_of, run
from tests.processors.phases.training import (
    MS,
    START,
    Loop,
    attributes_of,
    batch_of,
    gauge_batch,
    metrics_of,
    resource_of,
    span_of,
    values_of,
)


def test_lost_events_make_time_without_spans_unknown() -> None:
    whole = phases_of(run(batch_of(Loop().steps(100).load().spans)))
    losses = gauge_batch("zernel.ebpf.lost_events", [(1000, 0.0), (1500, 3.0)], process_pid=42)
    made = run(losses, batch_of(Loop().steps(100).load().spans))
    phases = phases_of(made)
    lossy = last(made, "zernel.steps.lossy", zernel_step_kind="training")
    assert 600 / 32.1 <= lossy <= 600 / 32.1 + 2  # plus the time of reading the counters
    lost = (phases["unknown"] - whole["unknown"]) / 10  # the forward passes without a mark
    assert lossy - 1 <= round(lost, 3) <= lossy
    assert sum(phases.values()) == pytest.approx(sum(whole.values()))


def test_the_time_and_the_durations_of_lossy_steps_are_known_apart() -> None:
    losses = gauge_batch("zernel.ebpf.lost_events", [(1000, 0.0), (1500, 3.0)], process_pid=42)
    made = run(losses, batch_of(Loop().steps(100).load().spans))
    lossy = last(made, "zernel.steps.lossy", zernel_step_kind="training")
    times = {}
    for name in ("zernel.phase.detail.time", "zernel.phase.lossy.time"):
        values = values_of(made, name)
        times[name] = {(about["zernel.phase"], about["zernel.phase.detail"]): value for about, value in values}
    assert times["zernel.phase.lossy.time"]["data_loading", "loader"] == pytest.approx(lossy * 0.005)
    lost = ("unknown", "lost")
    assert times["zernel.phase.lossy.time"][lost] == times["zernel.phase.detail.time"][lost] > 0
    counts = Counter[bool]()
    for point in (
        data_point for metric in metrics_of(made, "zernel.step.duration") for data_point in metric.histogram.data_points
    ):
        about = attributes_of(point.attributes)
        counts[bool(about.get("zernel.step.lossy"))] += point.count * (about["zernel.step.kind"] == "training")
    assert counts == {True: lossy, False: last(made, "zernel.steps", zernel_step_kind="training") - lossy}


def test_lossy_steps_are_counted_by_kind() -> None:
    loop = Loop().steps(100)
    start = loop.now
    for _ in range(100):
        loop.load().wait(10)
    losses = gauge_batch("zernel.ebpf.lost_events", [(start + 400, 0.0), (start + 700, 3.0)], process_pid=42)
    made = run(losses, batch_of(loop.load().spans))
    assert last(made, "zernel.steps.lossy", zernel_step_kind="training") == 0
    assert last(made, "zernel.steps.lossy", zernel_step_kind="evaluation") == pytest.approx(400 / 15, abs=2)


def readings(at: float, lost: float = 0.0, *, since: float = 0.0) -> Batch:
    """A reading of the kernel's counters: its sequence point, and the events lost since the reading before."""
    sequence = gauge_batch("zernel.reading.sequence", [(at, at // 1000)])
    losses = gauge_batch("zernel.ebpf.lost_events", [(at, lost)])
    metric = losses.edit_metrics().resource_metrics[0].scope_metrics[0].metrics[0]
    metric.gauge.data_points[0].start_time_unix_nano = START + round(since * MS)
    metric.sum.data_points.append(metric.gauge.data_points[0])
    metric.sum.aggregation_temporality = AggregationTemporality.AGGREGATION_TEMPORALITY_DELTA
    return Batch.join([sequence, losses]) if lost else sequence


def live(seconds: int, every: int, lost_at: int) -> Iterator[Batch]:
    """A training process whose spans and counters are read every `every` s, and a GPU that is read every second."""
    spans = Loop().steps(seconds * 1000 // 32).spans
    for second in range(1, seconds + 1):
        yield gauge_batch("hw.power", [(second * 1000, 100.0)], zernel_gpu_index=0)
        if second % every == 0:
            since, until = ((second - back) * 1000 for back in (every, 0))
            some = [span for span in spans if since < (span.end_time_unix_nano - START) / MS <= until]
            yield Batch.join([batch_of(some), readings(until, 5.0 if until == lost_at else 0.0, since=since)])


@pytest.mark.parametrize("every", [1, 10, 30])
def test_steps_wait_for_the_reading_that_reports_losses(every: int) -> None:
    processor = make(lateness="2s")
    made = feed(processor, live(90, every, lost_at=60_000))
    assert dropped(processor) == {}
    assert last(made, "zernel.steps.lossy", zernel_step_kind="training") == pytest.approx(
        (every * 1000 + 100) / 32.1, abs=2
    )
    assert last(made, "zernel.phase.doubtful") == 0
    assert phases_of(made)["unknown"] > 9.9 * every * 1000 / 32.1


def test_steps_do_not_wait_once_readings_have_stopped() -> None:
    processor = make(lateness="2s")
    batches = list(live(40, 10, lost_at=0))
    alone = [gauge_batch("hw.power", [(at * 1000, 100.0)], zernel_gpu_index=0) for at in range(41, 80)]
    made = [out for batch in [*batches, *alone] for out in processor.process(batch)]
    assert last(made, "zernel.steps", zernel_step_kind="training") == pytest.approx(40_000 / 32.1, abs=4)


def test_losses_that_are_reported_too_late_are_counted_once() -> None:
    processor = make(lateness="1s")
    batches = [batch_of(Loop().steps(300).spans), *[readings(7000, 3.0, since=2000)] * 2]
    made = feed(processor, [*batches, readings(8000, 1.0, since=6000)])
    closed = 300 * 32.1 - 1000
    assert last(made, "zernel.phase.doubtful") == pytest.approx((min(8000, closed) - 1900) / 1000)
    assert last(made, "zernel.steps.lossy", zernel_step_kind="training") == 0


def test_time_of_spans_beyond_the_limit_is_unknown_even_if_scattered() -> None:
    processor = make(max_spans=100)
    made = feed(processor, [batch_of(Loop().steps(500).load().spans)])
    assert dropped(processor)["max_spans"] == 1901
    assert phases_of(made)["gpu_compute"] < 26 * 22
    assert last(made, "zernel.phase.doubtful") == 0


def test_a_job_with_more_spans_than_the_limit_while_they_wait_loses_none() -> None:
    spans = Loop().steps(500).load().spans
    processor = make(max_spans=100, lateness="1h")
    made = feed(processor, (batch_of(spans[at : at + 40]) for at in range(0, len(spans), 40)))
    assert dropped(processor) == {}
    assert phases_of(made) == phases_of(run(batch_of(spans)))


def test_late_spans_are_dropped_and_counted() -> None:
    processor = make(lateness="100ms")
    feed(processor, [batch_of(Loop().steps(100).spans), batch_of(Loop().steps(1).spans)])
    assert dropped(processor) == {"late": 4}


def test_collectives_beyond_the_limit_of_a_step_are_counted() -> None:
    def lost(loop: Loop) -> dict[str, int]:
        processor = make(traces=None)
        for _ in range(1500):
            loop.do("collective", 0.1, timing_source="host_upper_bound")
        feed(processor, [batch_of(loop.load().spans)])
        return dropped(processor)

    assert lost(Loop().load()) == {"max_collectives": 1500 - 1024}
    assert lost(Loop()) == {}  # before the first step they do not matter


def test_processes_and_spans_beyond_the_limits_are_dropped_and_counted() -> None:
    processor = make(max_processes=2, max_spans=10)
    feed(processor, [batch_of(Loop().steps(3).spans, resource_of(pid)) for pid in (1, 2, 3)])
    assert dropped(processor) == {"max_processes": 12, "max_spans": 4}


def test_invalid_spans_create_no_report() -> None:
    nonsense = batch_of([span_of("something", 1, 2), span_of("process", 1, 2)], resource_of(1))
    made = run(nonsense, batch_of(Loop().steps(100).spans, resource_of(2)))
    assert {one["process.pid"] for one, _ in values_of(made, "zernel.verdict")} == {2}
