"""Series end with their process, or if its resource changes."""

from collections.abc import Iterator

from opentelemetry.proto.metrics.v1.metrics_pb2 import MetricsData
from opentelemetry.proto.trace.v1.trace_pb2 import Span

from otel_zernel.batch import Batch, points
from otel_zernel.testing import Dropped
from otel_zernel_libraries.prometheus import Format, Options, Page
from otel_zernel_processors.phases import PhasesProcessor
from tests.processors.phases.processing import dropped as counts_of
from tests.processors.phases.processing import in_pieces, make
from tests.processors.phases.training import MS, START, Loop, gauge_batch, span_of, values_of

PID = Options(label_names={"process.pid": "pid"})


def made(processor: PhasesProcessor, *batches: Batch) -> Iterator[MetricsData]:
    for batch in batches:
        yield from (out.metrics for out in processor.process(batch))


def pieces(spans: list[Span], **resource: object) -> Iterator[Batch]:
    return in_pieces(spans, 4, **resource)


def updated(page: Page, processor: PhasesProcessor, *batches: Batch) -> None:
    """The page gets what the processor makes of the batches."""
    for metrics in made(processor, *batches):
        page.update(metrics, 0)


def beside(seconds: int) -> Iterator[Batch]:
    """Another process, whose data advances the time."""
    return pieces([span for at in range(0, seconds * 1000, 500) for span in Loop(now=at).steps(1).spans], pid=2)


def shown(page: Page) -> list[str]:
    """The lines of processes, in the order of the page."""
    return [line for line in page.render(Format(), 0).decode().splitlines() if 'pid="' in line]


def test_once_a_rank_is_known_the_series_without_it_end_before_those_with_it() -> None:
    dropped = Dropped()
    page, processor, loop = Page(PID, dropped), make(), Loop()
    alone = list(pieces(loop.steps(100).spans))
    joined = list(pieces(Loop(now=loop.now).steps(100).spans, zernel_rank=3))
    updated(page, processor, *alone, *joined)
    assert "collision" not in dropped.counts
    assert any("zernel_verdict" in line for line in shown(page))


def test_the_series_of_an_ended_process_stay_for_a_minute() -> None:
    page, processor = Page(PID), make()
    ended = Loop().steps(100)
    spans = [*ended.spans, span_of("process", 0, ended.now, process_end="exit")]
    last_shown = 0
    for batch in sorted((*pieces(spans, pid=1), *beside(100)), key=_end):
        updated(page, processor, batch)
        if any('pid="1"' in line for line in shown(page)):
            last_shown = _end(batch)
    seconds = (last_shown - START) / 1e9 - ended.now / 1000
    assert 60 <= seconds <= 65  # a minute, plus the wait for late spans
    assert any('pid="2"' in line for line in shown(page))


def test_a_process_that_runs_another_program_has_the_idle_timeout_of_any() -> None:
    before = Loop().steps(100)
    after = Loop(now=before.now + 5000).steps(500)
    later = Loop(now=after.now + 20_000).steps(100)
    became = span_of("process", 0, before.now, process_end="exec")
    spans = [*before.spans, became, *after.spans, *later.spans]
    batches = sorted((*pieces(spans, pid=1), *beside(60)), key=_end)
    out = [Batch(metrics=metrics) for metrics in made(make(), *batches)]
    steps = [value for labels, value in values_of(out, "zernel.steps") if labels["process.pid"] == 1]
    assert max(steps) >= 690  # 5 s, 16 s, 20 s and 3 s, in one count


def test_a_process_that_is_active_again_keeps_its_series() -> None:
    before = Loop().steps(100)
    after = Loop(now=before.now + 15_000).steps(960, forward=78)
    spans = [*before.spans, span_of("process", 0, before.now, process_end="exec"), *after.spans]
    batches = sorted((*pieces(spans, pid=1), *beside(110)), key=_end)
    assert not [time for metrics in made(make(), *batches) for time in _times_of_ends(metrics)]


def test_a_change_of_the_source_ends_the_gauges_of_the_old_source() -> None:
    page, processor, loop = Page(PID), make(), Loop(now=5000)
    launches = [gauge_batch("zernel.process.cpu.burst", [(at, 0.02)], process_pid=42) for at in range(0, 5000, 100)]
    updated(page, processor, *launches)
    assert any('zernel_phase_source="signals"' in line for line in shown(page))
    updated(page, processor, *pieces(loop.steps(300).spans))
    assert {line.partition("{")[0] for line in shown(page) if 'zernel_phase_source="signals"' in line} <= {
        "zernel_phase_time_seconds_total",
        "zernel_phase_transitions_total",
    }


def test_series_do_not_end_with_the_collector() -> None:
    processor = make()
    list(made(processor, *pieces(Loop().steps(100).spans)))
    assert not [time for batch in processor.flush() for time in _times_of_ends(batch.metrics)]


def test_a_host_without_processes_is_removed_with_its_series_and_makes_room() -> None:
    page, processor, loop = Page(PID), make(max_processes=1, idle_timeout="5s"), Loop().steps(100)
    dies = span_of("process", 0, loop.now, process_end="exit")
    power = (gauge_batch("hw.power", [(at, 100.0)], zernel_gpu_index=0) for at in (4000, 8000))
    updated(page, processor, *pieces([*loop.spans, dies], pid=1), *power)
    assert "zernel_scheduler_tasks" in page.render(Format(), 0).decode()
    other = [*pieces(Loop().steps(1).spans, pid=2, host_name="other")]
    assert not [metrics for metrics in made(processor, *other) if metrics.resource_metrics]
    assert counts_of(processor) == {"max_processes": 4}
    for at in (100_000, 164_000, 166_000):
        for batch in processor.tick(START + at * MS):
            page.update(batch.metrics, 0)
    assert not [line for line in page.render(Format(), 0).decode().splitlines() if line.startswith("zernel")]
    list(made(processor, *other))
    assert counts_of(processor) == {"max_processes": 4}


def test_a_host_with_data_is_kept_without_processes() -> None:
    processor = make(idle_timeout="5s")
    power = [gauge_batch("hw.power", [(at * 1000, 100.0)], zernel_gpu_index=0) for at in range(300)]
    for at, batch in enumerate(power):
        list(processor.process(batch))
        list(processor.tick(START + at * 1000 * MS))
    assert list(processor._hosts.by_name) == ["node"]


def _end(batch: Batch) -> int:
    return batch.spans.resource_spans[0].scope_spans[0].spans[0].end_time_unix_nano


def _times_of_ends(metrics: MetricsData) -> Iterator[int]:
    for resource in metrics.resource_metrics:
        for metric in (metric for scope in resource.scope_metrics for metric in scope.metrics):
            yield from (point.time_unix_nano for point in points(metric) if point.flags)
