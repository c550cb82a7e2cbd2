"""Series end by a point without a recorded value, or after silence. Consumers get such a point too."""

from collections.abc import Sequence

import pytest
from opentelemetry.proto.metrics.v1.metrics_pb2 import Metric

from tests.processors.percentiles.running import RunningProcessor, fed

NO_VALUE = 1
CUMULATIVE = 2


def latency(pids: Sequence[int], *, ended: bool = False, kind: str = "gauge", temporality: int = 1) -> Metric:
    """A point for each process; without a recorded value if it has ended."""
    metric = Metric(name="latency", unit="s")
    data = getattr(metric, kind)
    if kind == "histogram":
        data.aggregation_temporality = temporality
    for pid in pids:
        point = data.data_points.add(flags=NO_VALUE if ended else 0, start_time_unix_nano=1)
        point.attributes.add(key="pid").value.int_value = pid
        if not ended and kind == "histogram":
            point.explicit_bounds.append(1.0)
            point.bucket_counts.extend([1, 0])
        elif not ended:
            point.as_double = 1.0
    return metric


def flags(running: RunningProcessor) -> dict[int, int]:
    """The flags of each process's point in the next tick."""
    return {point.attributes[0].value.int_value: point.flags for point in running.points()}


def kept(running: RunningProcessor) -> int:
    """The number of series and counters in memory."""
    processor = running.processor
    known = sum(map(len, processor.aggregation._intake._slots_of.values()))
    return (
        len(processor.aggregation._table.series)
        + processor.aggregation._counts.size()
        + known
        + len(processor.aggregation._intake._increases._last)
    )


@pytest.mark.parametrize("kind", ["gauge", "histogram"])
def test_an_ended_series_emits_its_last_percentiles_and_then_a_point_without_a_value(kind: str) -> None:
    running = fed(latency([1, 2], kind=kind), latency([1], kind=kind, ended=True))
    assert flags(running) == {1: 0, 2: 0}
    assert flags(running) == {1: NO_VALUE, 2: 0}
    assert flags(running) == {2: 0}


def test_a_series_that_continues_after_its_end_is_kept() -> None:
    running = fed(latency([1]), latency([1], ended=True))
    running.tick()
    running.process(latency([1]))
    assert running.point().count == 2
    assert flags(running) == {1: 0}


def test_with_group_by_the_end_of_one_input_series_does_not_end_the_merged_series() -> None:
    running = fed(latency([1, 2]), latency([1], ended=True), group_by=[])
    assert running.point().count == 2
    assert running.point().count == 2


def test_every_output_of_a_series_ends() -> None:
    running = fed(latency([1]), latency([1], ended=True), outputs=["summary", "histogram"])
    running.tick()
    assert [metric.WhichOneof("data") for metric in running.tick()] == ["summary", "exponential_histogram"]
    assert running.tick() == []


@pytest.mark.parametrize(("kind", "temporality"), [("gauge", 0), ("histogram", 1), ("histogram", CUMULATIVE)])
def test_thousands_of_short_lived_processes_leave_no_memory(kind: str, temporality: int) -> None:
    running = RunningProcessor({"max_series": 100, "window": "20s"})
    for first in range(0, 5000, 50):
        pids = range(first, first + 50)
        running.process(latency(pids, kind=kind, temporality=temporality))
        running.process(latency(pids, kind=kind, temporality=temporality, ended=True))
        running.tick()
    assert running.dropped == {}, "series made room for the next ones"
    for _ in range(2):
        running.tick()
    assert kept(running) == 0


@pytest.mark.parametrize("kind", ["gauge", "histogram"])
def test_a_large_metric_is_counted_whole(kind: str) -> None:
    running = RunningProcessor()
    assert running.process(latency(range(2000), kind=kind)) == []
    assert sum(point.count for point in running.points()) == 2000


def test_a_series_whose_last_values_were_emitted_is_removed_as_soon_as_it_ends() -> None:
    running = fed(latency([1]))
    assert flags(running) == {1: 0}
    running.process(latency([1], ended=True))
    assert flags(running) == {1: NO_VALUE}
    assert running.points() == []


def test_a_tick_and_a_flush_before_the_first_batch_emit_nothing() -> None:
    running = RunningProcessor()
    assert not running.tick()
    assert not list(running.processor.flush())
