"""The whole path: spans and points of training processes in, their phases out."""

import gc
import tracemalloc
from collections.abc import Iterable, Iterator
from itertools import pairwise

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from opentelemetry.proto.metrics.v1.metrics_pb2 import AggregationTemporality
from opentelemetry.proto.resource.v1.resource_pb2 import Resource
from opentelemetry.proto.trace.v1.trace_pb2 import Span

from otel_zernel.batch import Batch, points
from otel_zernel.testing import Dropped, FakeClock, make_context
from otel_zernel_processors.percentiles import PercentilesProcessor
from otel_zernel_processors.phases import PhasesProcessor
from otel_zernel_processors.phases.marks import mark_of
from otel_zernel_processors.phases.timeline import Timeline
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
    spans_of,
    values_of,
)


def make(**settings: object) -> PhasesProcessor:
    config = PhasesProcessor.Config.model_validate({"interval": "1s", **settings})
    clock = FakeClock(START + 365 * 86_400_000 * MS)  # streams are recordings, unless a test says otherwise
    return PhasesProcessor(config, make_context("processors", "phases", clock=clock))


def feed(processor: PhasesProcessor, batches: Iterable[Batch]) -> list[Batch]:
    return [out for batch in batches for out in processor.process(batch)] + list(processor.flush())


def run(*batches: Batch, **settings: object) -> list[Batch]:
    return feed(make(**settings), batches)


def dropped(processor: PhasesProcessor) -> dict[str, int]:
    assert isinstance(processor.context.drop, Dropped)
    return dict(processor.context.drop.counts)


def phases_of(batches: list[Batch], pid: int = 42) -> dict[str, float]:
    """The last value of zernel.phase.time of each phase, in ms."""
    times = values_of(batches, "zernel.phase.time")
    of_process = [(attributes, value) for attributes, value in times if attributes["process.pid"] == pid]
    return {str(attributes["zernel.phase"]): round(value * 1000, 6) for attributes, value in of_process}


def last(batches: list[Batch], name: str, **wanted: object) -> float:
    """The last value of a metric, of the points that have these attributes (`_` for `.`)."""
    expected = {key.replace("_", "."): value for key, value in wanted.items()}
    found = [value for attributes, value in values_of(batches, name) if expected.items() <= attributes.items()]
    return found[-1]


def state(batches: list[Batch], name: str) -> str:
    """The last state of a state set."""
    return [str(attributes[name]) for attributes, value in values_of(batches, name) if value][-1]


def in_pieces(spans: list[Span], size: int = 7, **resource: object) -> Iterator[Batch]:
    """The spans in the order they are known, some a batch."""
    spans = sorted(spans, key=lambda span: span.end_time_unix_nano)
    for at in range(0, len(spans), size):
        yield batch_of(spans[at : at + size], resource_of(**resource))  # type: ignore[arg-type]  # tests pass attributes


def test_every_nanosecond_of_a_step_has_its_phase() -> None:
    made = run(batch_of(Loop().steps(100).load().spans))
    expected = {"data_loading": 505, "gpu_compute": 2200, "optimizer_step": 500, "unknown": 10}
    assert phases_of(made) == pytest.approx(expected)
    assert last(made, "zernel.steps", zernel_step_kind="training") == 100
    assert {str(one["zernel.phase.source"]) for one, _ in values_of(made, "zernel.phase.time")} == {"scopes"}


def test_sums_only_grow_and_reports_come_at_whole_intervals() -> None:
    made = run(*in_pieces(Loop().steps(200).load().spans))
    points = [point for metric in metrics_of(made, "zernel.phase.time") for point in metric.sum.data_points]
    of_gpu = [p for p in points if attributes_of(p.attributes)["zernel.phase"] == "gpu_compute"]
    assert len(of_gpu) == 5
    assert all(one.as_double <= other.as_double for one, other in pairwise(of_gpu))
    assert all(point.time_unix_nano % (1000 * MS) == 0 for point in of_gpu[:-1])


def test_fractions_are_those_of_the_window() -> None:
    loop = Loop().steps(100, forward=1, backward=2, optimizer=1, tail=0)
    loop.steps(200, forward=20, backward=30, optimizer=4, tail=0)
    made = run(batch_of(loop.load().spans), window="5s")
    assert last(made, "zernel.phase.fraction", zernel_phase="gpu_compute") == pytest.approx(50 / 60, rel=0.02)
    assert last(made, "zernel.step.rate") == pytest.approx(1000 / 60, rel=0.02)


def test_where_nothing_was_closed_in_the_window_no_fractions_are_told() -> None:
    loop = Loop().do("user", 1).wait(4000).steps(50).load()
    processor, later = make(window="2s"), gauge_batch("hw.power", [(12_000, 100.0)])
    made = [out for batch in (batch_of(loop.spans), later) for out in processor.process(batch)]
    told: dict[int, list[float | None]] = {}
    for point in (point for metric in metrics_of(made, "zernel.phase.fraction") for point in metric.gauge.data_points):
        second = (point.time_unix_nano - START) // (1000 * MS)
        told.setdefault(second, []).append(None if point.flags else point.as_double)
    assert list(told) == [5, 6, 7, 8]
    assert [sum(value or 0.0 for value in told[second]) for second in (5, 6, 7)] == pytest.approx([1.0] * 3)
    assert told[8] == [None] * 5
    assert state(made, "zernel.verdict") == "none"


def batches_of(made: list[Batch]) -> tuple[bytes, bytes]:
    return b"".join(one.metrics_bytes() for one in made), b"".join(one.spans_bytes() for one in made)


LOOP = Loop().steps(40).load(0.03).wait(200).steps(40).load()
WHOLE = batches_of(run(*in_pieces(LOOP.spans)))


@settings(deadline=None, max_examples=20)
@given(st.integers(1, 400))
def test_however_a_stream_is_cut_into_batches_the_output_is_the_same(size: int) -> None:
    assert batches_of(run(*in_pieces(LOOP.spans, size))) == WHOLE


def test_durations_are_exact_and_link_to_traces() -> None:
    made = run(batch_of(Loop().steps(30).steps(1, forward=100).load().spans), traces={"sample": 10})
    points = [p for metric in metrics_of(made, "zernel.step.duration") for p in metric.histogram.data_points]
    training = [p for p in points if attributes_of(p.attributes)["zernel.step.kind"] == "training"]
    assert sum(point.count for point in training) == 31
    assert max(point.max for point in training) == 0.1221
    assert all(sum(point.bucket_counts) == point.count for point in points)
    exemplars = {one.trace_id for point in points for one in point.exemplars}
    assert exemplars == {span.trace_id for span in spans_of(made)}
    assert any(one.as_double == 0.1221 for point in training for one in point.exemplars)


def test_percentiles_of_step_durations_are_those_of_the_steps() -> None:
    loop = Loop()
    for number in range(1, 101):
        loop.steps(1, forward=number)
    config = PercentilesProcessor.Config.model_validate({"metrics": ["zernel.step.duration"], "quantiles": [0.5, 0.99]})
    percentiles = PercentilesProcessor(config, make_context("processors", "percentiles"))
    for batch in run(batch_of(loop.load().spans)):
        list(percentiles.process(batch))
    summaries = [
        point
        for metric in metrics_of(percentiles.flush(), "zernel.step.duration")
        for point in metric.summary.data_points
        if attributes_of(point.attributes)["zernel.step.kind"] == "training"
    ]
    quantiles = {one.quantile: one.value for one in summaries[-1].quantile_values}
    durations = {0.5: 0.0721, 0.99: 0.1211, 1.0: 0.1221}  # 22.1 ms besides the forward pass
    assert {quantile: quantiles[quantile] for quantile in durations} == pytest.approx(durations, rel=1e-3)


def test_other_spans_and_all_metrics_go_on() -> None:
    foreign = batch_of([Span(name="request")])
    foreign.edit_spans().resource_spans[0].scope_spans[0].scope.name = "my.app"
    assert run(foreign)[0].span_count == 1
    assert run(gauge_batch("hw.power", [(0, 100.0)]))[0].point_count == 1
    mine = batch_of(Loop().steps(3).spans)
    assert run(mine, traces=None)[0].span_count == 0
    passed = run(batch_of(Loop().steps(3).spans), traces=None, pass_through=True)
    assert sum(batch.span_count for batch in passed) == 12


def test_with_the_source_signals_spans_are_left_alone() -> None:
    made = run(batch_of(Loop().steps(3).spans), source="signals")
    assert (len(made), made[0].span_count) == (1, 12)


def test_a_process_that_dies_in_a_step_is_closed_and_forgotten() -> None:
    processor = make(idle_timeout="5s")
    dies = Loop().steps(10).load().wait(10).do("backward", 12)
    lives = Loop().steps(500).load()
    made = feed(processor, [*in_pieces(dies.spans, pid=1), *in_pieces(lives.spans, pid=2)])
    times = [one for one, _ in values_of(made, "zernel.phase.time") if one["process.pid"] == 1]
    assert phases_of(made, 1)["unknown"] == pytest.approx(10 * 0.1 + 10)
    assert last(made, "zernel.steps", process_pid=1, zernel_step_kind="unfinished") == 1
    assert len({id(one) for one in times}) < 60
    assert values_of(made, "zernel.scheduler.tasks")[-1][1] <= 1


def test_a_pid_that_comes_back_is_another_process() -> None:
    first, second = Loop().steps(10).load(), Loop(now=1000).steps(5).load()
    made = run(batch_of(first.spans, resource_of(created="A")), batch_of(second.spans, resource_of(created="B")))
    counts: dict[str, float] = {}
    for batch in made:
        for resource in batch.metrics.resource_metrics:
            created = str(attributes_of(resource.resource.attributes).get("process.creation.time", ""))
            for attributes, value in values_of([batch], "zernel.steps"):
                if attributes["zernel.step.kind"] == "training":
                    counts[created] = value
    assert counts == {"A": 10, "B": 5}


def test_lost_events_make_what_was_not_seen_unknown() -> None:
    whole = phases_of(run(batch_of(Loop().steps(100).load().spans)))
    losses = gauge_batch("zernel.ebpf.lost_events", [(1000, 0.0), (1500, 3.0)], process_pid=42)
    made = run(losses, batch_of(Loop().steps(100).load().spans))
    phases = phases_of(made)
    lossy = last(made, "zernel.steps.lossy")
    assert 600 / 32.1 <= lossy <= 600 / 32.1 + 2  # and what was lost while the counters were read
    assert phases["unknown"] == pytest.approx(whole["unknown"] + lossy * 10)
    assert sum(phases.values()) == pytest.approx(sum(whole.values()))


def readings(at: float, lost: float = 0.0, *, since: float = 0.0) -> Batch:
    """A reading of the kernel's counters: its mark, and the events lost since the one before."""
    both = gauge_batch("zernel.probe.floor", [(at, 1e-6)]), gauge_batch("zernel.ebpf.lost_events", [(at, lost)])
    for batch in both:
        metric = batch.edit_metrics().resource_metrics[0].scope_metrics[0].metrics[0]
        metric.gauge.data_points[0].start_time_unix_nano = START + round(since * MS)
    metric.sum.data_points.append(metric.gauge.data_points[0])
    metric.sum.aggregation_temporality = AggregationTemporality.AGGREGATION_TEMPORALITY_DELTA
    return Batch.join(both if lost else both[:1])


def live(seconds: int, every: int, lost_at: int) -> Iterator[Batch]:
    """A training process beside a GPU that is read each second; its spans and counters are read `every` so many."""
    spans = Loop().steps(seconds * 1000 // 32).spans
    for second in range(1, seconds + 1):
        yield gauge_batch("hw.power", [(second * 1000, 100.0)], zernel_gpu_index=0)
        if second % every == 0:
            since, until = ((second - back) * 1000 for back in (every, 0))
            some = [span for span in spans if since < (span.end_time_unix_nano - START) / MS <= until]
            yield Batch.join([batch_of(some), readings(until, 5.0 if until == lost_at else 0.0, since=since)])


@pytest.mark.parametrize("every", [1, 10, 30])
def test_steps_wait_for_the_reading_that_tells_what_was_lost(every: int) -> None:
    processor = make(lateness="2s")
    made = feed(processor, live(120, every, lost_at=60_000))
    assert dropped(processor) == {}
    assert last(made, "zernel.steps.lossy") == pytest.approx((every * 1000 + 100) / 32.1, abs=2)
    assert last(made, "zernel.phase.doubtful") == 0
    assert phases_of(made)["unknown"] > 9.9 * every * 1000 / 32.1


def test_where_readings_cease_steps_wait_no_longer() -> None:
    processor = make(lateness="2s")
    batches = list(live(40, 10, lost_at=0))
    alone = [gauge_batch("hw.power", [(at * 1000, 100.0)], zernel_gpu_index=0) for at in range(41, 80)]
    made = [out for batch in [*batches, *alone] for out in processor.process(batch)]
    assert last(made, "zernel.steps", zernel_step_kind="training") == pytest.approx(40_000 / 32.1, abs=4)


def test_what_is_lost_and_told_too_late_is_counted_once() -> None:
    processor = make(lateness="1s")
    batches = [batch_of(Loop().steps(300).spans), *[readings(7000, 3.0, since=2000)] * 2]
    made = feed(processor, [*batches, readings(8000, 1.0, since=6000)])
    closed = 300 * 32.1 - 1000
    assert last(made, "zernel.phase.doubtful") == pytest.approx((min(8000, closed) - 1900) / 1000)
    assert last(made, "zernel.steps.lossy") == 0


def test_what_finds_no_room_is_unknown_however_scattered_it_is() -> None:
    processor = make(max_spans=100)
    made = feed(processor, [batch_of(Loop().steps(500).load().spans)])
    assert dropped(processor)["max_spans"] == 1901
    assert phases_of(made)["gpu_compute"] < 26 * 22
    assert last(made, "zernel.phase.doubtful") == 0


def test_a_process_whose_rank_becomes_known_later_joins_its_job() -> None:
    first = Loop().steps(3)
    before = [batch_of(first.spans, resource_of(100 + rank)) for rank in range(2)]
    made = run(*before, Batch.join(ranks(late=20, transfer=1)))
    assert state(made, "zernel.job.verdict") == "straggler"


def test_spans_that_come_late_are_dropped_and_counted() -> None:
    processor = make(lateness="100ms")
    feed(processor, [batch_of(Loop().steps(100).spans), batch_of(Loop().steps(1).spans)])
    assert dropped(processor) == {"late": 4}


def test_times_in_the_future_do_not_make_everything_else_late() -> None:
    processor = make()
    right, wrong = Loop().steps(10).load(), Loop(now=367 * 86_400_000).steps(1)
    made = feed(processor, [batch_of(right.spans[:8]), batch_of(wrong.spans), batch_of(right.spans[8:])])
    assert dropped(processor) == {"invalid": 4}
    assert last(made, "zernel.steps", zernel_step_kind="training") == 10


def live_clock(**settings: object) -> tuple[PhasesProcessor, FakeClock]:
    """A processor whose clock is that of the spans."""
    clock = FakeClock(START)
    config = PhasesProcessor.Config.model_validate({"interval": "1s", **settings})
    return PhasesProcessor(config, make_context("processors", "phases", clock=clock)), clock


@pytest.mark.parametrize("ahead", [0, 600_000])
@pytest.mark.parametrize("silence", [0, 400_000])
def test_what_is_minutes_ahead_of_the_collectors_clock_makes_nothing_else_late(ahead: int, silence: int) -> None:
    processor, clock = live_clock()
    right, wrong = Loop(now=ahead + silence).steps(10).load(), Loop(now=ahead + silence + 120_000).steps(1)
    rogue = gauge_batch("hw.power", [(ahead + silence + 90_000, 100.0)], zernel_gpu_index=0)
    list(processor.process(gauge_batch("hw.power", [(ahead, 100.0)], zernel_gpu_index=0)))
    clock.advance(silence / 1000)
    made = feed(processor, [batch_of(right.spans[:8]), rogue, batch_of(wrong.spans), batch_of(right.spans[8:])])
    assert dropped(processor) == {"invalid": 5}
    assert last(made, "zernel.steps", zernel_step_kind="training") == 10


def test_a_host_whose_clock_was_set_ahead_is_believed_once_nothing_else_is_heard_of_it() -> None:
    processor, clock = live_clock(idle_timeout="10s")
    for at in range(1, 31):
        clock.advance(1.0)
        power = gauge_batch("hw.power", [(at * 1000 + (3_600_000 if at > 5 else 0), 100.0)], zernel_gpu_index=0)
        list(processor.process(power))
    assert dropped(processor) == {"invalid": 11}


def test_a_recording_may_pause_as_long_as_it_likes() -> None:
    for processor in (make(), live_clock()[0]):
        loops = Loop(now=86_400_000 * 2).steps(10), Loop(now=86_400_000 * 2 + 7_200_000).steps(10)
        feed(processor, map(batch_of, (loop.spans for loop in loops)))
        assert dropped(processor) == {}


def test_the_span_of_a_process_that_ended_is_no_part_of_its_steps() -> None:
    processor = make()
    loop = Loop().steps(10).load()
    made = feed(processor, [batch_of([*loop.spans, span_of("process", 0, 500)])])
    assert dropped(processor) == {}
    assert last(made, "zernel.steps", zernel_step_kind="training") == 10


def test_collectives_beyond_those_that_are_held_for_a_step_are_counted() -> None:
    def lost(loop: Loop) -> dict[str, int]:
        processor = make(traces=None)
        for _ in range(1500):
            loop.do("collective", 0.1, timing_source="host_upper_bound")
        feed(processor, [batch_of(loop.load().spans)])
        return dropped(processor)

    assert lost(Loop().load()) == {"max_collectives": 1500 - 1024}
    assert lost(Loop()) == {}  # before the first step they say nothing


def test_processes_and_spans_beyond_the_limits_are_dropped_and_counted() -> None:
    processor = make(max_processes=2, max_spans=10)
    feed(processor, [batch_of(Loop().steps(3).spans, resource_of(pid)) for pid in (1, 2, 3)])
    assert dropped(processor) == {"max_processes": 12, "max_spans": 4}


def test_energy_of_a_gpu_goes_to_the_phases_of_its_process() -> None:
    loop = Loop().steps(100, forward=10, backward=12, optimizer=17, tail=5).load()
    energy = gauge_batch("hw.energy", [(at, 500.0 * at / 1000) for at in range(500, 4001, 500)], zernel_gpu_index=3)
    made = run(*in_pieces(loop.spans, zernel_local_rank=3), energy)
    joules = {str(one["zernel.phase"]): value for one, value in values_of(made, "zernel.phase.energy")}
    assert sum(joules.values()) == pytest.approx(1750)
    assert joules["gpu_compute"] / sum(joules.values()) == pytest.approx(22 / 50, rel=0.02)


def beside_one_that_dies(how: str) -> list[Batch]:
    """What is told of 8 s of a GPU that 1 and 2 share, of which 1 ends after 3 s; its counters are read once more."""
    loop = Loop().steps(94)
    ended = batch_of([*loop.spans, span_of("process", 0, loop.now, process_end=how)], resource_of(1))
    lives = batch_of(Loop().steps(300).spans, resource_of(2))
    energy = gauge_batch("hw.energy", [(at, 100.0 * at / 1000) for at in range(0, 9001, 500)], zernel_gpu_index=0)
    last_counts = gauge_batch("zernel.process.io.wait", [(9500, 1.0)], process_pid=1)
    processor = make(lateness="500ms")
    return [out for batch in (Batch.join([energy, ended, lives]), last_counts) for out in processor.process(batch)]


def test_a_process_that_died_holds_back_no_energy_and_takes_none() -> None:
    def joules(made: list[Batch], pid: int) -> float:
        told = values_of(made, "zernel.phase.energy")
        return sum({str(one): value for one, value in told if one["process.pid"] == pid}.values())

    for how in ("exit", "signal"):
        made = beside_one_that_dies(how)
        assert joules(made, 1) == pytest.approx(150)
        assert joules(made, 2) == pytest.approx(150 + 550)
        assert last(made, "zernel.scheduler.tasks", type="total") == 1
    assert joules(beside_one_that_dies("exec"), 2) == pytest.approx(125)  # what is known of 1's phases


def test_what_is_told_of_a_process_after_its_end_makes_no_new_one() -> None:
    processor = make(lateness="500ms")
    spans = [*Loop().steps(90).spans, span_of("process", 0, 3000, process_end="signal")]
    lives = (batch_of(Loop(now=at).steps(100).spans, resource_of(2)) for at in (3000, 7000))
    feed(processor, [batch_of(spans, resource_of(1)), *lives, batch_of(spans[-5:], resource_of(1))])
    assert dropped(processor) == {"late": 5}


def test_a_worker_takes_no_share_of_the_energy() -> None:
    energy = gauge_batch("hw.energy", [(at, 500.0 * at / 1000) for at in range(500, 4001, 500)], zernel_gpu_index=3)
    waits = gauge_batch("zernel.process.io.wait", [(at, at / 2000) for at in range(0, 5000, 100)])
    waits.edit_metrics().resource_metrics[0].resource.CopyFrom(resource_of(7, zernel_local_rank=3))
    made = run(batch_of(Loop().steps(200).load().spans, resource_of(zernel_local_rank=3)), waits, energy)
    spent = [(one["process.pid"], value) for one, value in values_of(made, "zernel.phase.energy")]
    assert {pid for pid, _ in spent} == {42}
    assert sum(value for _, value in spent[-4:]) == pytest.approx(1750)


def test_a_process_without_scopes_is_judged_by_signals() -> None:
    points = [(at, 0.5 * at / 1000) for at in range(0, 5000, 100)]
    launches = [(at, at / 10) for at in range(0, 5000, 100)]
    batches = [
        one
        for pair in zip(points, launches, strict=True)
        for one in (
            gauge_batch("zernel.process.io.wait", [pair[0]], process_pid=7),
            gauge_batch("zernel.cuda.launch.latency", [pair[1]], process_pid=7),
        )
    ]
    made = run(*batches)
    assert phases_of(made, 7) == {"unknown": 300, "data_loading": 4500}
    assert {str(one["zernel.phase.source"]) for one, _ in values_of(made, "zernel.phase.time")} == {"signals"}


def counters(every: int, until: int = 5000) -> Iterator[Batch]:
    """The counters of a process that waits for its disk half of the time, read `every` so many ms."""
    for at in range(0, until, every):
        yield gauge_batch("zernel.process.io.wait", [(at, 0.5 * at / 1000)], process_pid=42)
        yield gauge_batch("zernel.cuda.launch.latency", [(at, at / 10)], process_pid=42)


def sources_of(batches: Iterable[Batch]) -> set[str]:
    """By what phases were told."""
    return {str(attributes["zernel.phase.source"]) for attributes, _ in values_of(batches, "zernel.phase.time")}


@pytest.mark.parametrize(
    ("source", "told_by"), [("auto", {"scopes"}), ("scopes", {"scopes"}), ("signals", {"signals"})]
)
def test_of_a_process_with_scopes_and_counters_the_source_decides(source: str, told_by: set[str]) -> None:
    assert sources_of(run(batch_of(Loop().steps(100).load().spans), *counters(100), source=source)) == told_by


def time_of(batches: Iterable[Batch]) -> dict[tuple[str, ...], float]:
    """The last value of zernel.phase.time by source and phase, in ms."""
    return {
        (str(attributes["zernel.phase.source"]), str(attributes["zernel.phase"])): value * 1000
        for attributes, value in values_of(batches, "zernel.phase.time")
    }


def test_what_signals_told_of_before_the_scopes_came_counts_once() -> None:
    first = Loop(now=3000).load(1500).steps(20).load()
    processor = make()
    made = [out for batch in (*counters(100), batch_of(first.spans)) for out in processor.process(batch)]
    told = time_of([*made, *processor.flush()])
    judged = sum(lasted for (source, _), lasted in told.items() if source == "signals")
    assert judged == 4800
    assert sum(told.values()) == pytest.approx(first.now)


@pytest.mark.parametrize(("source", "told_by"), [("auto", {"signals"}), ("scopes", set()), ("signals", {"signals"})])
def test_of_a_process_without_scopes_the_source_decides(source: str, told_by: set[str]) -> None:
    assert sources_of(run(*counters(100), source=source)) == told_by


def test_a_process_that_trains_without_a_loader_has_no_steps_and_is_judged_by_signals() -> None:
    loop = Loop()
    for _ in range(100):
        loop.train()
    made = run(batch_of(loop.spans), *counters(100))
    assert sources_of(made) == {"signals"}
    assert values_of(made, "zernel.steps") == []


@pytest.mark.parametrize(("every", "lines"), [(100, 0), (1000, 1)])
def test_who_is_judged_by_counters_read_too_rarely_is_told_once(
    every: int, lines: int, caplog: pytest.LogCaptureFixture
) -> None:
    made = run(*counters(every, 9000), signals={"stability": 1}, window="5s")
    assert phases_of(made)["data_loading"] == 9000 - 3 * every
    assert sum("set the ebpf receiver's interval" in record.getMessage() for record in caplog.records) == lines


def test_who_has_scopes_a_little_later_is_not_told_of_counters(caplog: pytest.LogCaptureFixture) -> None:
    run(*counters(1000, 4000), batch_of(Loop(now=4000).steps(10).spans), *counters(1000, 90_000))
    assert not caplog.records


def test_every_result_of_a_process_says_by_what_it_is_known() -> None:
    energy = gauge_batch("hw.energy", [(at, 500.0 * at / 1000) for at in range(500, 4001, 500)], zernel_gpu_index=0)
    for made in (run(batch_of(Loop().steps(200).load().spans), energy), run(*counters(100), energy)):
        for name in names_of(made):
            if not name.startswith(("zernel.scheduler", "hw", "zernel.process", "zernel.cuda")):
                assert all(
                    "zernel.phase.source" in attributes_of(point.attributes)
                    for metric in metrics_of(made, name)
                    for point in points(metric)
                ), name


def names_of(batches: Iterable[Batch]) -> set[str]:
    """The names of all metrics."""
    return {
        metric.name
        for batch in batches
        for resource in batch.metrics.resource_metrics
        for scope in resource.scope_metrics
        for metric in scope.metrics
    }


def test_transitions_epochs_and_idle_time_are_told() -> None:
    loop = Loop().steps(50).load(0.03).wait(200).steps(50).load()
    idle = gauge_batch("hw.gpu.utilization", [(at, 0.75) for at in range(0, 3001, 100)], zernel_gpu_index=0)
    made = run(batch_of(loop.spans), idle)
    assert last(made, "zernel.epochs") == 1
    assert last(made, "zernel.steps", zernel_step_kind="between") == 2
    changes = 5  # a step passes through: compute, optimizer, unknown, loading; the first load comes from unknown
    assert last(made, "zernel.phase.transitions") == pytest.approx(100 * (changes - 1), abs=changes)
    seconds = {str(one["zernel.phase"]): value for one, value in values_of(made, "zernel.phase.gpu.idle")}
    assert sum(seconds.values()) == pytest.approx(0.25 * 3)
    assert seconds["gpu_compute"] == pytest.approx(0.25 * 3 * 2200 / 3410, rel=0.1)


def test_the_host_tells_the_tasks_and_the_time_of_each_phase() -> None:
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


def test_a_clock_that_goes_back_takes_no_time_back() -> None:
    processor = make()
    loops = [Loop(now=at).steps(100).load() for at in (60_000, 20_000, 70_000)]
    made = feed(processor, (batch_of(loop.spans) for loop in loops))
    assert dropped(processor) == {"late": 401}
    times = [
        (point.time_unix_nano, attributes_of(point.attributes)["zernel.phase"], point.as_double)
        for metric in metrics_of(made, "zernel.phase.time")
        for point in metric.sum.data_points
    ]
    assert [time for time, _, _ in times] == sorted(time for time, _, _ in times)
    for phase in ("gpu_compute", "data_loading", "optimizer_step", "unknown"):
        sums = [value for _, of, value in times if of == phase]
        assert sums == sorted(sums)


def test_a_large_batch_is_worked_on_in_pieces() -> None:
    processor = make(max_spans=20_000, interval="10s")
    batch = batch_of(Loop().steps(2_500).spans)
    pieces, closed = 0, [0]
    for _ in processor.process(batch):
        pieces += 1
        (host,) = processor._hosts.values() or [None]
        if host:
            closed.append(sum(process.account.steps.total() for process in host.processes.values()))
    assert pieces > 10_000 / 256 + 10_000 / 64
    assert max(after - before for before, after in pairwise(closed)) <= 64


def test_a_very_long_step_is_worked_on_in_pieces() -> None:
    def pieces(within: str) -> int:
        """How often others get a turn while a step of 5,000 spans is closed, which overlap with what is `within`."""
        loop = Loop().load()
        for _ in range(5_000):
            loop.do("sync", 0.1, name="cudaStreamSynchronize").wait(0.6)
        overlapping = span_of(within, 10, 3000)
        timeline = Timeline(MS // 2, 10_000)
        for span in [*loop.load().spans, overlapping]:
            mark = mark_of(span)
            assert mark
            assert timeline.add(mark) is None
        return max(sum(1 for _ in step.settle()) for step in timeline.end())

    assert pieces("user") >= 10
    assert pieces("backward") >= 10


def test_a_verdict_is_given_once_it_has_held() -> None:
    made = run(batch_of(Loop().steps(200).load(100).steps(200, forward=60).load().spans))
    assert state(made, "zernel.verdict") == "compute_bound"
    assert state(run(batch_of(Loop().steps(5).load().spans)), "zernel.verdict") == "none"


def ranks(late: float, transfer: float, hosts: tuple[str, str] = ("node", "node")) -> Iterator[Batch]:
    """Two ranks in lockstep: rank 1 arrives `late` ms after rank 0, then both wait for the `transfer`."""
    for rank in range(2):
        loop = Loop()
        for _ in range(200):
            loop.load().wait(10 + (late if rank == 1 else 0)).do("backward", 12)
            loop.do("sync", transfer + (late if rank == 0 else 0), name="c10d::Work::wait").do("optimizer", 3)
        resource = resource_of(
            100 + rank, zernel_world_size=2, zernel_rank=rank, k8s_job_name="bert", host_name=hosts[rank]
        )
        yield batch_of(loop.load().spans, resource)


def test_a_verdict_is_logged_with_its_evidence(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level("INFO")
    run(batch_of(Loop().steps(200, forward=60).load().spans))
    (line,) = [record.getMessage() for record in caplog.records if "is compute_bound" in record.getMessage()]
    assert line.startswith("process 42 on node is compute_bound: ")
    assert "input_bound 0.06" in line
    assert "compute_bound 0.87" in line


@pytest.mark.parametrize(
    ("late", "transfer", "verdict"), [(20, 1, "straggler"), (0, 20, "slow_link"), (0.5, 1, "balanced")]
)
@pytest.mark.parametrize("hosts", [("node", "node"), ("a", "b")])
def test_ranks_of_a_job_are_compared(late: float, transfer: float, verdict: str, hosts: tuple[str, str]) -> None:
    made = run(Batch.join(ranks(late, transfer, hosts)))
    assert state(made, "zernel.job.verdict") == verdict
    assert last(made, "zernel.job.rank.lateness", zernel_rank=1) == pytest.approx(late / 1000)
    assert last(made, "zernel.job.collective.transfer") == pytest.approx(transfer / 1000)


def test_who_is_met_first_by_its_use_of_the_gpu_is_known_by_its_own_resource_and_host() -> None:
    met = gauge_batch("zernel.gpu.process.utilization", [(0, 0.5)], process_pid=100, zernel_gpu_index=0)
    other = gauge_batch("zernel.gpu.process.utilization", [(0, 0.5)], process_pid=101, zernel_gpu_index=1)
    for batch in (met, other):
        batch.edit_metrics().resource_metrics[0].ClearField("resource")
    made = run(met, other, Batch.join(ranks(late=20, transfer=1)))
    assert state(made, "zernel.job.verdict") == "straggler"
    waits = gauge_batch("zernel.process.io.wait", [(at, at / 2000) for at in range(0, 3000, 100)])
    waits.edit_metrics().resource_metrics[0].resource.CopyFrom(resource_of(100))
    told = [
        resource.resource
        for batch in run(met, waits)
        for resource in batch.metrics.resource_metrics
        if any(metric.name == "zernel.phase.time" for metric in resource.scope_metrics[0].metrics)
    ]
    assert told
    assert all(resource == resource_of(100) for resource in told)


def test_a_worker_that_inherits_the_rank_of_its_trainer_is_no_rank() -> None:
    inherited = {"zernel_world_size": 2, "zernel_rank": 1, "k8s_job_name": "bert"}
    worker = gauge_batch("zernel.process.io.wait", [(at, at / 1000) for at in range(100)])
    worker.edit_metrics().resource_metrics[0].resource.CopyFrom(resource_of(7, **inherited))  # type: ignore[arg-type]
    before = (batch_of(Loop().steps(1).spans, resource_of(100 + rank)) for rank in range(2))
    made = run(*before, worker, Batch.join(ranks(late=20, transfer=1)))
    assert state(made, "zernel.job.verdict") == "straggler"
    assert last(made, "zernel.job.rank.lateness", zernel_rank=1) == pytest.approx(0.02)


def test_a_live_host_that_falls_silent_shows_its_last_steps() -> None:
    processor = make()
    list(processor.process(batch_of(Loop().steps(10).load().spans)))
    made = list(processor.tick(START + 60_000 * MS))
    assert last(made, "zernel.steps", zernel_step_kind="training") == 9


def test_a_recording_is_not_hurried_by_the_wall_clock() -> None:
    processor = make()
    first, second = Loop().steps(10), Loop(now=321).steps(10).load()
    made = list(processor.process(batch_of(first.spans)))
    made += processor.tick(START + 365 * 86400 * 1000 * MS)
    made += feed(processor, [batch_of(second.spans)])
    assert last(made, "zernel.steps", zernel_step_kind="training") == 20
    assert dropped(processor) == {}


def memory_by_hour(step_ms: int, interval: str) -> Iterator[int]:
    """Bytes held after each hour of a day of steps; every hour a pid comes back as another process."""
    processor, loop = make(interval=interval, window="30m", idle_timeout="10m"), Loop()
    tracemalloc.start()
    try:
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
    [(20_000, "10m"), pytest.param(250, "10s", marks=[pytest.mark.soak, pytest.mark.timeout(3600)])],
)
def test_a_day_of_steps_takes_no_more_memory_than_some_hours(step_ms: int, interval: str) -> None:
    sizes = list(memory_by_hour(step_ms, interval))
    assert max(sizes[12:]) < max(sizes[2:12]) * 1.1


def test_a_process_that_began_after_a_report_is_not_in_it() -> None:
    early, late = Loop().steps(80).load(), Loop(now=2300).steps(10)
    made = run(*in_pieces(early.spans, pid=1), *in_pieces(late.spans, pid=2), gauge_batch("hw.power", [(9000, 1.0)]))
    times = [
        point.time_unix_nano
        for metric in metrics_of(made, "zernel.verdict")
        for point in metric.gauge.data_points
        if attributes_of(point.attributes)["process.pid"] == 2
    ]
    assert min(times) == START + 3000 * MS


def test_spans_that_make_no_sense_make_no_process() -> None:
    nonsense = batch_of([span_of("something", 1, 2), span_of("process", 1, 2)], resource_of(1))
    made = run(nonsense, batch_of(Loop().steps(100).spans, resource_of(2)))
    assert {one["process.pid"] for one, _ in values_of(made, "zernel.verdict")} == {2}


def test_an_interval_without_steps_has_no_durations() -> None:
    late = gauge_batch("hw.power", [(9000, 1.0)], zernel_gpu_index=0)
    made = run(batch_of(Loop().steps(10).load().spans), late)
    assert all(metric.histogram.data_points for metric in metrics_of(made, "zernel.step.duration"))


KINDS = st.sampled_from(["data_loading", "backward", "optimizer", "sync", "collective", "user", "nonsense"])
TIMES = st.one_of(st.integers(START - 10**9, START + 10**11), st.integers(0, 2**64 - 1))


@settings(deadline=None)
@given(st.lists(st.tuples(KINDS, TIMES, TIMES, st.integers(0, 3), st.integers(-1, 2)), max_size=40))
def test_no_spans_bring_it_down(rows: list[tuple[str, int, int, int, int]]) -> None:
    for kind, start, end, thread, pid in rows:
        span = span_of(kind, 0, 0, thread=thread)
        span.start_time_unix_nano, span.end_time_unix_nano = start, end
        for batch in run(batch_of([span], resource_of(pid)), traces={"sample": 1}):
            batch.spans_bytes(), batch.metrics_bytes()
    spans = []
    for kind, start, end, thread, _ in rows:
        spans.append(span_of(kind, 0, 0, thread=thread))
        spans[-1].start_time_unix_nano, spans[-1].end_time_unix_nano = start, end
    run(batch_of(spans), traces={"sample": 1})


KINDS_OF_SPANS = st.sampled_from(
    [
        "data_loading",
        "data_loading",
        "backward",
        "optimizer",
        "zero_grad",
        "ddp",
        "sync",
        "collective",
        "user",
        "process",
    ]
)
NAMES_OF_SPANS = st.sampled_from(["", "c10d::Work::wait", "c10d::Reducer::finalize_backward", "cudaStreamSynchronize"])
SPANS = st.builds(
    lambda kind, start, lasts, thread, name, source: span_of(
        kind, start, start + lasts, thread=thread, name=name, timing_source=source
    ),
    *(KINDS_OF_SPANS, st.integers(0, 4000), st.integers(-2, 60) | st.integers(0, 3000), st.integers(1, 2)),
    *(NAMES_OF_SPANS, st.sampled_from(["host_enqueue", "host_upper_bound"])),
)


def without_host(resource: Resource) -> Resource:
    """The resource, that does not say where it is."""
    return Resource(attributes=[one for one in resource.attributes if one.key != "host.name"])


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
SIGNALS = st.builds(
    lambda name, rows, pid: gauge_batch(name, rows, process_pid=pid, zernel_gpu_index=0),
    st.sampled_from(
        [
            "zernel.process.io.wait",
            "zernel.cuda.sync.wait",
            "zernel.ebpf.lost_events",
            "zernel.probe.floor",
            "hw.energy",
        ]
    ),
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
    """Of each point of a sum: what it is of, its start, its time (ns) and its value."""
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
def test_whatever_comes_no_sum_goes_back_and_traces_are_whole(batches: list[Batch], limits: dict[str, object]) -> None:
    made = run(*batches, **limits)
    told: dict[tuple[object, ...], tuple[int, float]] = {}
    for series, start, time, value in timed(made):
        before, least = told.get((*series, start), (start, 0.0))
        assert time >= before
        assert value >= least
        told[*series, start] = time, value
    spans = spans_of(made)
    ids = {span.span_id for span in spans}
    assert len(ids) == len(spans)
    assert all(not span.parent_span_id or span.parent_span_id in ids for span in spans)


@settings(deadline=None, max_examples=50)
@given(st.lists(st.sampled_from(["", "a", "b"]), max_size=8))
def test_who_does_not_say_where_it_is_stays_on_one_host(names: list[str]) -> None:
    processor, loop, hosts = make(traces={"sample": 1}), Loop(), set()
    made: list[Batch] = []
    for name in [*names, ""]:
        resource = resource_of(1, host_name=name) if name else without_host(resource_of(1))
        loop.spans.clear()
        made += processor.process(batch_of(loop.steps(40).spans, resource))
        if not name:
            (nameless,) = (
                host
                for host in processor._hosts.values()
                for process in host.processes.values()
                if process.resource == resource
            )
            hosts.add(id(nameless))
    made += processor.flush()
    assert len(hosts) == 1
    roots = [span.trace_id for span in spans_of(made) if not span.parent_span_id]
    assert len(set(roots)) == len(roots)


@given(st.lists(SPANS, max_size=60), st.sampled_from([10, 10_000]))
def test_whatever_comes_the_phases_of_a_step_add_up_to_it(spans: list[Span], room: int) -> None:
    timeline = Timeline(MS // 2, room)
    for span in spans:
        if mark := mark_of(span):
            timeline.add(mark)
    for closed in timeline.end():
        assert sum(closed.ledger.phase_ns().values()) == closed.step.end - closed.step.start >= 0
