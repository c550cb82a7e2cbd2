"""The source of the phases of each process: scopes or signals."""

from collections.abc import Iterable, Iterator

import pytest

from otel_zernel.batch import Batch, points
from tests.otlp import metrics_in
from tests.processors.phases.processing import last, make, phases_of, run
from tests.processors.phases.training import (
    Loop,
    attributes_of,
    batch_of,
    gauge_batch,
    metrics_of,
    values_of,
)


def test_with_the_source_signals_spans_pass() -> None:
    made = run(batch_of(Loop().steps(3).spans), source="signals")
    assert (len(made), made[0].count_of("traces")) == (1, 12)


def test_a_process_without_scopes_has_phases_by_signals() -> None:
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
    """The counters of a process that waits for its disk half of the time, read every `every` ms."""
    for at in range(0, until, every):
        yield gauge_batch("zernel.process.io.wait", [(at, 0.5 * at / 1000)], process_pid=42)
        yield gauge_batch("zernel.cuda.launch.latency", [(at, at / 10)], process_pid=42)


def sources_of(batches: Iterable[Batch]) -> set[str]:
    """The sources of the phases."""
    return {str(attributes["zernel.phase.source"]) for attributes, _ in values_of(batches, "zernel.phase.time")}


@pytest.mark.parametrize(
    ("source", "sources"), [("auto", {"scopes"}), ("scopes", {"scopes"}), ("signals", {"signals"})]
)
def test_the_setting_decides_for_a_process_with_scopes_and_counters(source: str, sources: set[str]) -> None:
    assert sources_of(run(batch_of(Loop().steps(100).load().spans), *counters(100), source=source)) == sources


def time_of(batches: Iterable[Batch]) -> dict[tuple[str, ...], float]:
    """The last value of zernel.phase.time by source and phase, in ms."""
    return {
        (str(attributes["zernel.phase.source"]), str(attributes["zernel.phase"])): value * 1000
        for attributes, value in values_of(batches, "zernel.phase.time")
    }


def fractions_of(batches: Iterable[Batch]) -> dict[str, float]:
    """The last fraction of each phase."""
    return {str(about["zernel.phase"]): value for about, value in values_of(batches, "zernel.phase.fraction")}


def test_the_start_of_a_job_by_signals_is_not_in_the_fractions_of_its_steps() -> None:
    trained = batch_of(Loop(5000).steps(100).load().spans)
    alone = fractions_of(run(trained.copy(), interval="1s"))
    assert fractions_of(run(*counters(100), trained, interval="1s")) == pytest.approx(alone)


def test_time_by_signals_before_the_first_scopes_counts_once() -> None:
    first = Loop(now=3000).load(1500).steps(20).load()
    processor = make()
    made = [out for batch in (*counters(100), batch_of(first.spans)) for out in processor.process(batch)]
    times = time_of([*made, *processor.flush()])
    by_signals = sum(lasted for (source, _), lasted in times.items() if source == "signals")
    assert by_signals == 4800
    assert sum(times.values()) == pytest.approx(first.now)


def test_time_by_signals_before_the_first_scopes_dilutes_no_shares() -> None:
    made = run(*counters(100), batch_of(Loop(now=6000).steps(200).spans), window="60s")
    assert last(made, "zernel.phase.fraction", zernel_phase="gpu_compute") > 0.6


@pytest.mark.parametrize(("source", "sources"), [("auto", {"signals"}), ("scopes", set()), ("signals", {"signals"})])
def test_the_setting_decides_for_a_process_without_scopes(source: str, sources: set[str]) -> None:
    assert sources_of(run(*counters(100), source=source)) == sources


def test_a_process_that_trains_without_a_loader_has_phases_by_scopes() -> None:
    loop = Loop()
    for _ in range(100):
        loop.train()
    made = run(batch_of(loop.spans), *counters(100))
    assert sources_of(made) == {"scopes"}
    assert last(made, "zernel.steps", zernel_step_kind="training", zernel_step_boundary="optimizer") == 100


@pytest.mark.parametrize(("every", "lines"), [(100, 0), (1000, 1)])
def test_counters_that_are_read_too_rarely_are_logged_once(
    every: int, lines: int, caplog: pytest.LogCaptureFixture
) -> None:
    made = run(*counters(every, 9000), signals={"stability": 1}, window="5s")
    assert phases_of(made)["data_loading"] == 9000 - 3 * every
    assert sum("set the ebpf receiver's interval" in record.getMessage() for record in caplog.records) == lines


def test_a_process_whose_scopes_arrive_a_little_later_is_not_logged(caplog: pytest.LogCaptureFixture) -> None:
    run(*counters(1000, 4000), batch_of(Loop(now=4000).steps(10).spans), *counters(1000, 90_000))
    assert not caplog.records


def test_every_point_of_a_process_has_the_source_of_its_phases() -> None:
    energy = gauge_batch("hw.energy", [(at, 500.0 * at / 1000) for at in range(500, 4001, 500)], zernel_gpu_index=0)
    for made in (run(batch_of(Loop().steps(200).load().spans), energy), run(*counters(100), energy)):
        names = names_of(made)
        assert any(name.startswith("zernel.phase") for name in names)
        for name in names:
            if not name.startswith(("zernel.scheduler", "hw", "zernel.process", "zernel.cuda")):
                assert all(
                    "zernel.phase.source" in attributes_of(point.attributes)
                    for metric in metrics_of(made, name)
                    for point in points(metric)
                ), name


def names_of(batches: Iterable[Batch]) -> set[str]:
    """The names of all metrics."""
    return {metric.name for batch in batches for metric in metrics_in(batch.metrics)}
