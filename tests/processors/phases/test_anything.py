"""Arbitrary input in any amount: no exception, no decreasing sum, bounded memory."""

import gc
import tracemalloc
from collections.abc import Iterable, Iterator

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from opentelemetry.proto.resource.v1.resource_pb2 import Resource
from opentelemetry.proto.trace.v1.trace_pb2 import Span

from otel_zernel.batch import Batch
from otel_zernel_processors.phases.emit.durations import StepDurations
from otel_zernel_processors.phases.emit.services import with_service
from otel_zernel_processors.phases.scopes.timeline import Timeline
from tests.processors.phases.processing import dropped, in_pieces, make, run
from tests.processors.phases.training import (
    MS,
    START,
    Loop,
    attributes_of,
    batch_of,
    gauge_batch,
    interval_of,
    resource_of,
    span_of,
    spans_of,
)


def fill_free_lists() -> None:
    """Python and numpy keep freed memory for reuse: with the first 1,000 histograms up to 20 KB, which is no growth."""
    durations = StepDurations()
    durations.add("training", MS)
    for _ in range(1_000):
        durations.metric([], {}, 0, 1)


def memory_by_hour(step_ms: int, interval: str) -> Iterator[int]:
    """Bytes in use after each hour of a day of steps. Every hour a pid is reused by another process."""
    processor, loop = make(interval=interval, window="30m", idle_timeout="10m"), Loop()
    tracemalloc.start()
    try:
        fill_free_lists()
        for hour in range(24):
            for _ in range(60):
                loop.spans.clear()
                loop.steps(60_000 // step_ms, forward=step_ms - 10.1)
                for batch in in_pieces(loop.spans, 400, pid=hour % 3, created=str(hour)):
                    for _ in processor.process(batch):
                        pass
            gc.collect()  # cycles are no growth
            yield tracemalloc.get_traced_memory()[0]
    finally:
        tracemalloc.stop()
    assert dropped(processor) == {}


@pytest.mark.parametrize(
    ("step_ms", "interval"),
    [(60_000, "10m"), pytest.param(250, "10s", marks=[pytest.mark.soak, pytest.mark.timeout(3600)])],
)
def test_a_day_of_steps_needs_no_more_memory_than_some_hours(step_ms: int, interval: str) -> None:
    sizes = list(memory_by_hour(step_ms, interval))
    assert max(sizes[12:]) < max(sizes[2:12]) * 1.1


KINDS = st.sampled_from(["data_loading", "backward", "optimizer", "sync", "collective", "user", "nonsense"])


TIMES = st.one_of(st.integers(START - 10**9, START + 10**11), st.integers(0, 2**64 - 1))


@settings(deadline=None, max_examples=50)
@given(st.lists(st.tuples(KINDS, TIMES, TIMES, st.integers(0, 3), st.integers(-1, 2)), max_size=40))
def test_no_spans_raise_an_exception(rows: list[tuple[str, int, int, int, int]]) -> None:
    for kind, start, end, thread, pid in rows:
        span = span_of(kind, 0, 0, thread=thread)
        span.start_time_unix_nano, span.end_time_unix_nano = start, end
        for batch in run(batch_of([span], resource_of(pid)), traces={"sample": 1}):
            batch.bytes_of("traces"), batch.bytes_of("metrics")
    spans = []
    for kind, start, end, thread, _ in rows:
        spans.append(span_of(kind, 0, 0, thread=thread))
        spans[-1].start_time_unix_nano, spans[-1].end_time_unix_nano = start, end
    run(batch_of(spans), traces={"sample": 1})


KINDS_OF_SPANS = st.sampled_from(
    [
        *("data_loading", "data_loading", "backward", "optimizer", "operators", "operators"),
        *("zero_grad", "ddp", "sync", "collective", "user", "process"),
    ]
)
NAMES_OF_SPANS = st.sampled_from(["", "c10d::Work::wait", "c10d::Reducer::finalize_backward", "cudaStreamSynchronize"])


RUNS: list[dict[str, object]] = [
    {"grad": True},
    {"grad": False, "operators_end": "region"},
    {"grad": False, "operators_end": "operator", "gap_faults": 900},
    {"grad": False, "operators_parts": 3, "operators_time": 0.02},
    {"grad": False, "operators_parts": 3, "operators_edges": "0 900 1000 5000 x 9 65535 65535"},
    {"operators_kind": "update", "grad": False},
    {"grad": True, "gap_blocked": 0.05, "tail_blocked": 0.02},
    {"grad": True, "tail_faults": 10_000, "operators_count": -1, "operators_parts": -4},
]
SPANS = st.builds(
    lambda kind, start, lasts, thread, name, source, run: span_of(
        kind, start, start + lasts, thread=thread, name=name, timing_source=source, **run
    ),
    *(KINDS_OF_SPANS, st.integers(0, 4000), st.integers(-2, 60) | st.integers(0, 3000), st.integers(1, 2)),
    *(NAMES_OF_SPANS, st.sampled_from(["host_enqueue", "host_upper_bound"]), st.sampled_from(RUNS)),
)


def without_host(resource: Resource) -> Resource:
    """The resource without `host.name`."""
    return Resource(attributes=[attribute for attribute in resource.attributes if attribute.key != "host.name"])


OF_PROCESSES = st.sampled_from(
    [
        without_host(resource_of(1, "A")),
        without_host(resource_of(4, "A")),
        resource_of(1, "A"),
        resource_of(1, "B"),
        resource_of(1, "A", host_name="other", zernel_rank=0, zernel_world_size=2),
        resource_of(2, zernel_rank=1, zernel_world_size=2, zernel_local_rank=0),
        resource_of(3, zernel_rank=1, zernel_world_size=2, zernel_local_rank=0),
    ]
)


INPUTS = ("process.io.wait", "cuda.sync.wait", "ebpf.lost_events", "reading.sequence")
SIGNALS = st.builds(
    lambda name, rows, pid: gauge_batch(name, rows, process_pid=pid, zernel_gpu_index=0),
    st.sampled_from([f"zernel.{name}" for name in INPUTS] + ["hw.energy"]),
    st.lists(st.tuples(st.integers(0, 5000), st.floats(0, 9)), max_size=5),
    st.integers(1, 3),
)


BATCHES = st.builds(batch_of, st.lists(SPANS, max_size=20), OF_PROCESSES) | SIGNALS


SETTINGS: list[dict[str, object]] = [
    {},
    {"lateness": "0s", "interval": "100ms", "window": "300ms", "traces": {"sample": 1, "max_spans": 4}},
    {"max_spans": 10, "max_processes": 2, "idle_timeout": "2s"},
]


def timed(batches: Iterable[Batch]) -> Iterator[tuple[tuple[object, ...], int, int, float]]:
    """For each point of a sum: its series, its start, its time (ns) and its value."""
    for batch in batches:
        for resource in batch.metrics.resource_metrics:
            of = resource.resource.SerializeToString(deterministic=True)
            for metric in (metric for scope in resource.scope_metrics for metric in scope.metrics):
                for point in metric.sum.data_points if metric.name.startswith("zernel.phase.") else ():
                    labels = tuple(sorted(attributes_of(point.attributes).items()))
                    value = point.as_int or point.as_double
                    yield (metric.name, of, labels), point.start_time_unix_nano, point.time_unix_nano, value


@settings(deadline=None)
@given(st.lists(BATCHES, max_size=10), st.sampled_from(SETTINGS))
def test_with_any_input_sums_only_grow_and_traces_are_whole(batches: list[Batch], limits: dict[str, object]) -> None:
    made = run(*batches, **limits)
    latest: dict[tuple[object, ...], tuple[int, float]] = {}
    for series, start, time, value in timed(made):
        before, least = latest.get((*series, start), (start, 0.0))
        assert time >= before
        assert value >= least
        latest[*series, start] = time, value
    spans = [span for span in spans_of(made) if span.trace_id]  # the ends of processes pass without one
    ids = {span.span_id for span in spans}
    assert len(ids) == len(spans)
    assert all(not span.parent_span_id or span.parent_span_id in ids for span in spans)


@settings(deadline=None, max_examples=30)
@given(st.lists(st.sampled_from(["", "a", "b"]), max_size=8))
def test_data_without_a_host_name_stays_on_one_host(names: list[str]) -> None:
    processor, loop, hosts = make(traces={"sample": 1}), Loop(), set()
    made: list[Batch] = []
    for name in [*names, ""]:
        resource = resource_of(1, host_name=name) if name else without_host(resource_of(1))
        loop.spans.clear()
        made += processor.process(batch_of(loop.steps(4).spans, resource))
        if not name:
            (unnamed,) = (
                host
                for host in processor._hosts.by_name.values()
                for process in host.processes.values()
                if process.resource == with_service(resource)
            )
            hosts.add(id(unnamed))
    made += processor.flush()
    assert len(hosts) == 1
    roots = [span.trace_id for span in spans_of(made) if not span.parent_span_id]
    assert len(set(roots)) == len(roots)


@given(st.lists(SPANS, max_size=60), st.sampled_from([10, 10_000]))
def test_with_any_input_the_phases_of_a_step_add_up_to_it(spans: list[Span], room: int) -> None:
    timeline = Timeline(MS // 2, room)
    for span in spans:
        if interval := interval_of(span):
            timeline.add(interval)
    for closed in timeline.end():
        assert sum(closed.attribution.phase_ns().values()) == closed.step.end - closed.step.start >= 0
