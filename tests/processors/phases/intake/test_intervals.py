"""Points without a value, and missing marks: the verdict on a process whose PyTorch does not have them names them."""

import pytest
from opentelemetry.proto.metrics.v1.metrics_pb2 import Metric
from opentelemetry.proto.trace.v1.trace_pb2 import Span

from otel_zernel.batch import Batch
from otel_zernel_libraries.training.interval_spans import ThreadSpan
from otel_zernel_libraries.training.ledger import unpacked_snapshots
from otel_zernel_processors.phases.intake.inputs import input_points
from tests.libraries.training.ledger.made_snapshots import NOTHING
from tests.otlp import data
from tests.processors.phases.processing import feed, make, run, state
from tests.processors.phases.training import Loop, batch_of, gauge_batch, interval_of


def test_the_verdict_on_a_process_without_scopes_names_the_missing_marks(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level("INFO")
    seconds = [(at * 1000, 1.0) for at in range(6)]
    marks = [
        gauge_batch("zernel.ebpf.missing_marks", seconds, process_pid=42, zernel_mark=mark)
        for mark in ("scopes", "backward", "something else")
    ]
    made = run(Batch.join(marks))
    assert state(made, "zernel.verdict") == "marks_missing"
    (line,) = [record.getMessage() for record in caplog.records if "marks_missing" in record.getMessage()]
    assert "process 42 on node" in line
    assert "missing: backward passes, scopes)" in line, "an unknown mark is not logged"


def test_the_other_marks_still_give_a_verdict() -> None:
    processor = make()
    missing = gauge_batch("zernel.ebpf.missing_marks", [(0, 1.0)], process_pid=42, zernel_mark="backward")
    spans = [span for span in Loop().steps(300, forward=1.0, backward=1.0).load().spans if span.name != "backward"]
    made = feed(processor, [missing, batch_of(spans)])
    assert state(made, "zernel.verdict") == "input_bound"


def test_the_kept_span_of_an_interval_does_not_change_with_its_batch() -> None:
    span = Span(name="cudaStreamSynchronize", start_time_unix_nano=1, end_time_unix_nano=2)
    span.attributes.add(key="zernel.interval").value.string_value = "sync"
    span.attributes.add(key="thread.id").value.int_value = 1
    interval = interval_of(span)
    span.Clear()
    assert interval
    assert interval.span
    assert interval.span.name == "cudaStreamSynchronize"


def test_the_kept_span_of_an_interval_has_no_snapshots() -> None:
    span = ThreadSpan("sync", "cudaStreamSynchronize", 1, 2, 3, snapshots=NOTHING.to_bytes() * 2).to_span()
    interval = interval_of(span)
    assert interval
    assert unpacked_snapshots([interval.snapshots]) == NOTHING.to_bytes() * 2
    assert interval.span
    assert [pair.key for pair in interval.span.attributes] == ["thread.id", "zernel.interval"]


def test_a_point_without_a_recorded_value_is_skipped() -> None:
    histogram = Metric(name="zernel.cuda.launch.latency")
    burst = Metric(name="zernel.process.cpu.burst")
    for points in (histogram.histogram.data_points, burst.gauge.data_points):
        points.add(flags=1)
    histogram.histogram.data_points.add(count=3)
    burst.gauge.data_points.add(as_double=0.5)
    assert [point.value for point in input_points(data(histogram, burst))] == [3, 0.5]
