"""Traces of steps: whole trees with stable ids, of sampled and of slow steps."""

from collections import Counter

import pytest
from opentelemetry.proto.trace.v1.trace_pb2 import Span

from otel_zernel.batch import Batch
from otel_zernel_processors.phases.emit.services import with_service
from tests.processors.phases.processing import dropped, feed, make, run
from tests.processors.phases.synchronous import by_trace
from tests.processors.phases.training import MS, Loop, attributes_of, batch_of, resource_of, span_of, spans_of


def traced(loop: Loop, *more: Span, **traces: object) -> tuple[list[Batch], dict[str, int]]:
    processor = make(traces=traces)
    return feed(processor, [batch_of([*loop.spans, *more])]), dropped(processor)


def trees(spans: list[Span]) -> dict[bytes, list[Span]]:
    """The spans by trace. Checks that each trace is one tree with the step as its root."""
    assert {(len(span.trace_id), len(span.span_id)) for span in spans} <= {(16, 8)}
    traces = by_trace(spans)
    for some in traces.values():
        ids = {span.span_id for span in some}
        assert len(ids) == len(some)
        assert [span.name for span in some if not span.parent_span_id] == ["step"]
        assert all(span.parent_span_id in ids for span in some if span.parent_span_id)
    return traces


def numbers(spans: list[Span]) -> list[object]:
    return [attributes_of(span.attributes)["zernel.step.number"] for span in spans if span.name == "step"]


def test_a_step_is_a_tree_whose_children_fill_it() -> None:
    made, _ = traced(Loop().steps(2).load(), sample=1)
    steps = trees(spans_of(made))
    assert steps
    for root, *children in steps.values():
        assert children[0].start_time_unix_nano == root.start_time_unix_nano
        assert children[-1].end_time_unix_nano == root.end_time_unix_nano
        assert {child.parent_span_id for child in children} == {root.span_id}


def test_a_trace_has_the_resource_of_its_process_and_the_attributes_of_its_step() -> None:
    made, _ = traced(Loop().steps(3).load(), sample=2, slowest=0)
    resources = [resource for batch in made for resource in batch.spans.resource_spans]
    assert [resource.resource for resource in resources] == [with_service(resource_of())]
    root = spans_of(made)[0]
    attributes = attributes_of(root.attributes)
    assert attributes["zernel.step.kind"] == "training"
    assert attributes["zernel.phase.optimizer_step"] == pytest.approx(0.005)


def test_the_span_of_a_step_has_the_first_cause_of_its_job() -> None:
    made, _ = traced(Loop().steps(100, load=30).load(), sample=50, slowest=0)
    assert {attributes_of(span.attributes)["zernel.cause"] for span in spans_of(made) if span.name == "step"} == {
        "segment"
    }
    made, _ = traced(Loop().steps(100, load=0.1).load(), sample=50, slowest=0)
    assert not any("zernel.cause" in attributes_of(span.attributes) for span in spans_of(made))


def test_collectives_and_long_syncs_are_children_of_the_segment_in_which_they_began() -> None:
    loop = Loop().load().wait(10).do("backward", 12).do("sync", 0.4, name="cudaEventSynchronize")
    loop.do("sync", 4, name="cudaStreamSynchronize").do("optimizer", 3).load()
    reduce = span_of("collective", 20, 31, name="all_reduce", thread=7, nccl_bytes=1024, timing_source="host_enqueue")
    made, _ = traced(loop, reduce, sample=1)
    spans = {span.name: span for some in trees(spans_of(made)).values() for span in some if len(some) > 3}
    assert spans["all_reduce"].parent_span_id == spans["backward"].span_id
    assert attributes_of(spans["all_reduce"].attributes)["zernel.nccl.bytes"] == 1024
    assert spans["cudaStreamSynchronize"].parent_span_id == spans["gpu_wait"].span_id
    assert "cudaEventSynchronize" not in spans


def test_every_nth_the_slow_and_the_slowest_become_traces() -> None:
    loop = Loop().steps(12).steps(1, forward=90).steps(5).steps(1, forward=60).steps(5).load()
    assert numbers(spans_of(traced(loop, sample=10, slowest=0)[0])) == [10, 20]
    assert numbers(spans_of(traced(loop, sample=0, slowest=1)[0])) == [14]
    assert numbers(spans_of(traced(loop, sample=0, slowest=2)[0])) == [14, 20]
    assert numbers(spans_of(traced(loop, sample=0, slowest=0, slow_step="70ms")[0])) == [14, 20]
    assert numbers(spans_of(traced(loop, sample=7, slowest=1, slow_step="100ms")[0])) == [7, 14, 20, 21]
    assert spans_of(traced(loop, sample=0, slowest=0)[0]) == []


def test_the_same_spans_give_the_same_ids() -> None:
    first, second = (spans_of(traced(Loop().steps(3).load(), sample=1)[0]) for _ in range(2))
    assert first == second


def test_steps_and_spans_beyond_the_limits_are_dropped_and_counted() -> None:
    made, lost = traced(Loop().steps(9).load(), sample=1, max_steps=4, max_spans=5)
    assert len(numbers(spans_of(made))) == 4
    assert Counter(span.trace_id for span in spans_of(made)).most_common(1)[0][1] == 5
    assert lost["max_steps"] == 6
    assert lost["max_trace_spans"] > 0


def test_a_step_of_no_length_has_a_valid_trace() -> None:
    loop = Loop().load().load(0)
    made, _ = traced(loop, sample=1)
    assert all(span.end_time_unix_nano - span.start_time_unix_nano <= 5 * MS for span in spans_of(made))


def test_two_steps_of_a_rank_that_begin_together_have_a_trace_each() -> None:
    loads = [span_of("data_loading", 0, 0, name=name) for name in ("", "c10d::Work::wait")]
    spans = spans_of(run(batch_of(loads, resource_of(1, zernel_rank=0, zernel_world_size=2)), traces={"sample": 1}))
    assert len({span.trace_id for span in spans}) == len(spans) == 2
