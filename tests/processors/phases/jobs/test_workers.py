"""Workers of a training process are not followed: no row, no series, no verdict."""

import pytest
from opentelemetry.proto.resource.v1.resource_pb2 import Resource

from otel_zernel.batch import Batch, points
from otel_zernel.otlp.staleness import has_no_value
from tests.processors.phases.processing import dropped, feed, make
from tests.processors.phases.training import Loop, attributes_of, batch_of, gauge_batch, resource_of, values_of

RANKS = 8
LAUNCHER = 10


def rank_of(rank: int, *, begins: float = 0.0) -> Batch:
    """The spans of a rank that a launcher has started."""
    return batch_of(Loop(now=begins).steps(60).load().spans, rank_resource(100 + rank, rank, LAUNCHER))


def rank_resource(pid: int, rank: int, parent: int) -> Resource:
    return resource_of(pid, zernel_rank=rank, zernel_world_size=RANKS, process_parent_pid=parent)


def worker_of(rank: int, number: int, name: str = "zernel.process.io.wait") -> Batch:
    """The counters of a worker, which has inherited the environment of its rank."""
    counters = gauge_batch(name, [(at, at / 2000) for at in range(0, 3000, 100)])
    resource = rank_resource(1000 + 100 * rank + number, rank, 100 + rank)
    counters.edit_metrics().resource_metrics[0].resource.CopyFrom(resource)
    return counters


def job(workers: int) -> list[Batch]:
    """The ranks, then their workers, then later data of the host."""
    of_ranks = Batch.join(map(rank_of, range(RANKS)))
    of_workers = [worker_of(rank, number) for number in range(workers) for rank in range(RANKS)]
    return [of_ranks, *of_workers, gauge_batch("hw.power", [(9000, 1.0)])]


def series_of(batches: list[Batch]) -> set[tuple[str, str, str]]:
    """Every series that has a value: metric, resource and attributes."""
    return {
        (metric.name, str(attributes_of(resource.resource.attributes)), str(attributes_of(point.attributes)))
        for batch in batches
        for resource in batch.metrics.resource_metrics
        for scope in resource.scope_metrics
        if scope.scope.name == "otel_zernel_processors.phases"
        for metric in scope.metrics
        for point in points(metric)
        if not has_no_value(point)
    }


def most_tasks(batches: list[Batch]) -> float:
    tasks = values_of(batches, "zernel.scheduler.tasks")
    return max(value for attributes, value in tasks if attributes["type"] == "total")


def test_the_number_of_series_and_of_rows_depends_on_ranks_and_not_on_workers() -> None:
    alone = make(max_processes=RANKS, interval="1s")
    crowded = make(max_processes=RANKS, interval="1s")
    without, with_workers = feed(alone, job(0)), feed(crowded, job(16))
    assert series_of(with_workers) == series_of(without)
    assert dropped(crowded) == {}
    assert most_tasks(with_workers) == RANKS


def test_a_worker_that_is_seen_before_its_trainer_trains_is_dismissed_and_its_series_end() -> None:
    processor = make(interval="1s")
    early = (worker_of(0, 1), gauge_batch("hw.power", [(5500, 1.0)]))
    made = [out for batch in early for out in processor.process(batch)]
    assert {one["process.pid"] for one, _ in values_of(made, "zernel.verdict")} == {1001}
    made = feed(processor, [rank_of(0, begins=6000), gauge_batch("hw.power", [(12_000, 1.0)])])
    ended = {
        attributes_of(point.attributes)["process.pid"]
        for batch in made
        for resource in batch.metrics.resource_metrics
        for metric in resource.scope_metrics[0].metrics
        if metric.name == "zernel.verdict"
        for point in points(metric)
        if has_no_value(point)
    }
    assert ended == {1001}
    assert most_tasks(made) == 1


@pytest.mark.parametrize("child", ["trains", "uses the GPU", "has another rank"])
def test_a_child_that_trains_or_has_another_rank_is_followed(child: str) -> None:
    if child == "trains":
        resource = rank_resource(1001, 0, 100)
        batch = batch_of(Loop().steps(20).load().spans, resource)
    elif child == "uses the GPU":
        batch = worker_of(0, 1, "zernel.cuda.memory.used")
    else:
        batch = worker_of(0, 1)
        batch.edit_metrics().resource_metrics[0].resource.CopyFrom(rank_resource(1001, 1, 100))
    made = feed(make(), [rank_of(0), batch])
    assert {one["process.pid"] for one, _ in values_of(made, "zernel.verdict")} == {100, 1001}
