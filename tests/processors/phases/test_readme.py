"""Every metric is declared with its unit and attributes, which the page of metrics shows."""

from collections.abc import Iterator

from otel_zernel.batch import Batch, points
from otel_zernel_libraries.training import semconv
from otel_zernel_processors.phases.emit.declared import METRICS
from tests.processors.phases.processing import make, run
from tests.processors.phases.results.test_device import spans_of_thread, trained
from tests.processors.phases.short_steps import fast_loop, without_some
from tests.processors.phases.synchronous import Job
from tests.processors.phases.training import Loop, attributes_of, batch_of, gauge_batch, resource_of

OF_GROUPS = ("zernel.job.", "zernel.scheduler.", "zernel.step.critical_path.")
"""The beginnings of the names of metrics of jobs and hosts."""
OF_SOME = {semconv.RANK, semconv.POSITION, semconv.ACTIVITY, semconv.PHASE_SOURCE}
"""Attributes that some points of a metric lack: a cause of no rank, or the verdict on a job."""
PID = "process.pid"
"""An attribute of every point of a process, which is not declared."""


def emitted() -> Iterator[tuple[str, str, set[str]]]:
    """Name, unit and attributes of every metric of a job of two ranks, one GPU each, and of a process with losses."""
    processor = make()
    for rank in range(2):
        resource = resource_of(100 + rank, zernel_world_size=2, zernel_rank=rank, zernel_local_rank=rank)
        made = list(processor.process(batch_of(Loop().steps(200).load().spans, resource)))
        for name in ("hw.energy", "hw.gpu.utilization"):
            made += processor.process(gauge_batch(name, [(0, 0.2), (2000, 0.4)], zernel_gpu_index=rank))
    for batch in [*made, *processor.flush()]:
        yield from described(batch)
    job = Job(size=2).train(20)
    losses = gauge_batch("zernel.ebpf.lost_events", [(0, 0.0), (500, 3.0)], process_pid=42)
    of_process = run(losses, batch_of(Loop().steps(60).spans))[1:]  # the first one is that of the losses
    on_gpu = run(batch_of(spans_of_thread(trained())))
    short = run(batch_of(without_some(fast_loop(300).spans, "data_loading", every=2)))
    for batch in (*run(*(job.batch(rank) for rank in range(2))), *of_process, *on_gpu, *short):
        yield from described(batch)


def described(batch: Batch) -> Iterator[tuple[str, str, set[str]]]:
    for resource in batch.metrics.resource_metrics:
        for metric in resource.scope_metrics[0].metrics:
            if metric.name.startswith("zernel."):
                yield (
                    metric.name,
                    metric.unit,
                    set().union(*(attributes_of(point.attributes) for point in points(metric))),
                )


def test_every_metric_is_declared_with_its_unit_and_attributes() -> None:
    declared = {name: metric for name, metric in METRICS.items() if not metric.own}
    seen: dict[tuple[str, str], set[str]] = {}
    for name, unit, attributes in emitted():
        seen.setdefault((name, unit), set()).update(attributes)
    assert {name for name, _ in seen} == set(declared)
    for (name, unit), attributes in seen.items():
        assert unit == declared[name].unit, name
        assert set(declared[name].attributes) - attributes <= OF_SOME, name
        assert attributes - set(declared[name].attributes) <= {PID}, name
        if not name.startswith(OF_GROUPS):
            assert PID in attributes, name
