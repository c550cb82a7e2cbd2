"""The tables of the README list every metric with its unit and attributes."""

import re
from collections.abc import Iterator
from pathlib import Path

import otel_zernel_processors.phases
from otel_zernel.batch import Batch, points
from otel_zernel.testing import make_context
from otel_zernel_libraries.training import semconv
from otel_zernel_processors.phases import PhasesProcessor
from tests.processors.phases.processing import run
from tests.processors.phases.results.test_device import spans_of_thread, trained
from tests.processors.phases.short_steps import fast_loop, without_some
from tests.processors.phases.synchronous import Job
from tests.processors.phases.training import Loop, attributes_of, batch_of, gauge_batch, resource_of

README = Path(otel_zernel_processors.phases.__file__).with_name("README.md")
ROW = re.compile(r"^\| `(zernel\.[a-z_.]+)` \| ([^|]+) \|([^|]*)\|[^|]+\|$", re.MULTILINE)
STATES = {"total", "ml"}
"""Values in the tables that are not names of attributes."""
OF_GROUPS = ("zernel.job.", "zernel.scheduler.", "zernel.step.critical_path.")
"""The beginnings of the names of metrics of jobs and hosts."""
OF_ALL = {"process.pid", "zernel.phase.source"}


def emitted() -> Iterator[tuple[str, str, set[str]]]:
    """Name, unit and attributes of every metric of a job of two ranks, one GPU each, and of a process with losses."""
    config = PhasesProcessor.Config.model_validate({"interval": "1s"})
    processor = PhasesProcessor(config, make_context("processors", "phases"))
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
                yield metric.name, metric.unit, set().union(*(attributes_of(one.attributes) for one in points(metric)))


def test_every_metric_is_in_the_tables_with_its_unit_and_attributes() -> None:
    rows = {
        name: (kind, set(re.findall("`([a-z_.]+)`", attributes)))
        for name, kind, attributes in ROW.findall(README.read_text())
    }
    seen: dict[tuple[str, str], set[str]] = {}
    for name, unit, attributes in emitted():
        seen.setdefault((name, unit), set()).update(attributes)
    assert {name for name, _ in seen} == set(rows)
    for (name, unit), attributes in seen.items():
        kind, further = rows[name]
        assert kind.endswith(f", {unit}") or (not unit and "," not in kind), name
        of_process = set() if name.startswith(OF_GROUPS) else OF_ALL
        if name == semconv.JOB_HUNG:  # of a job, or of a process that trains alone
            of_process = attributes & OF_ALL
        assert attributes - of_process == further - STATES, name
        assert of_process <= attributes
