"""Jobs: which processes are one, and the lines that the log has about them."""

from collections.abc import Iterator
from typing import Any

import pytest

from otel_zernel.batch import Batch
from otel_zernel.otlp.points import AttributeValue
from otel_zernel.testing import FakeClock, make_context
from otel_zernel_processors.phases import PhasesProcessor
from otel_zernel_processors.phases.intake.host_clock import HostClock
from otel_zernel_processors.phases.jobs import Jobs
from otel_zernel_processors.phases.process import ProcessIdentity, TrainingProcess
from tests.processors.phases.processing import feed, make, run
from tests.processors.phases.training import Loop, attributes_of, batch_of, gauge_batch, resource_of, span_of, values_of


def ranks(
    count: int, *, first_pid: int = 100, slow_loader: frozenset[int] = frozenset(), **more: AttributeValue
) -> Iterator[Batch]:
    """The ranks of a job. Some of them wait for data."""
    for rank in range(count):
        loop = Loop().steps(100, load=1, forward=60) if rank not in slow_loader else Loop()
        for _ in range(0 if rank not in slow_loader else 100):
            loop.load(50).train()
        known: dict[str, AttributeValue] = {"zernel_rank": rank, "zernel_world_size": count, **more}
        resource = resource_of(first_pid + rank, **known)  # type: ignore[arg-type]  # tests pass attributes
        yield batch_of(loop.load().spans, resource)


def lines(caplog: pytest.LogCaptureFixture, part: str) -> list[str]:
    return [record.getMessage() for record in caplog.records if part in record.getMessage()]


def jobs_of(batches: list[Batch]) -> set[tuple[tuple[str, object], ...]]:
    """The resources of the metrics of jobs."""
    return {
        tuple(sorted(attributes_of(resource.resource.attributes).items()))
        for batch in batches
        for resource in batch.metrics.resource_metrics
        if any(metric.name == "zernel.job.verdict" for metric in resource.scope_metrics[0].metrics)
    }


def test_a_verdict_on_all_ranks_of_a_job_is_one_line(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level("INFO")
    run(Batch.join(ranks(8, process_parent_pid=7)))
    (line,) = lines(caplog, "all 8 ranks")
    assert line.startswith("job node/7: all 8 ranks are compute_bound: Nothing worth changing was found: ")


def test_a_verdict_on_some_ranks_names_them(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level("INFO")
    run(Batch.join(ranks(8, slow_loader=frozenset({1, 2, 3, 6}), zernel_job_id="bert")))
    (bound,) = lines(caplog, "are input_bound: ")
    assert bound.startswith("job bert: ranks 1-3, 6 are input_bound: ")
    (bound,) = lines(caplog, "are compute_bound: ")
    assert bound.startswith("job bert: ranks 0, 4-5, 7 are compute_bound: ")


def test_ranks_of_one_launcher_are_a_job_without_a_name() -> None:
    made = run(Batch.join([*ranks(2, process_parent_pid=7), *ranks(2, first_pid=200, process_parent_pid=8)]))
    assert jobs_of(made) == {
        (("service.name", "unknown_service"), ("zernel.job.launcher", f"node/{launcher}")) for launcher in (7, 8)
    }


def test_two_launchers_with_one_name_are_two_jobs() -> None:
    """Two trainings in one interactive allocation of a scheduler have the same job id."""
    two = [*ranks(2, process_parent_pid=7, zernel_job_id="4711")]
    two += ranks(2, first_pid=200, process_parent_pid=8, zernel_job_id="4711")
    assert {dict(job)["zernel.job.launcher"] for job in jobs_of(run(Batch.join(two)))} == {"node/7", "node/8"}


def test_ranks_of_two_hosts_are_one_job_without_a_name() -> None:
    both = list(ranks(2))
    for number, batch in enumerate(both):
        resource = resource_of(
            100, zernel_rank=number, zernel_world_size=2, process_parent_pid=7, host_name=f"n{number}"
        )
        batch.edit_spans().resource_spans[0].resource.CopyFrom(resource)
    assert jobs_of(run(Batch.join(both))) == {(("service.name", "unknown_service"), ("zernel.world_size", "2"))}


def test_an_unknown_service_is_not_the_name_of_a_job() -> None:
    made = run(Batch.join(ranks(2, process_parent_pid=7, service_name="unknown_service:python3.11")))
    (job,) = jobs_of(made)
    assert dict(job) == {"service.name": "unknown_service:python3.11", "zernel.job.launcher": "node/7"}


def test_a_given_service_name_is_the_name_of_a_job() -> None:
    assert jobs_of(run(Batch.join(ranks(2, service_name="bert")))) == {(("service.name", "bert"),)}


def test_every_resource_has_the_name_of_a_service() -> None:
    named = [*ranks(2, service_name="bert"), batch_of(Loop().steps(50).spans, resource_of(7, zernel_job_id="4711"))]
    named += [batch_of(Loop().steps(50).spans, resource_of(8, process_executable_name="train.py"))]
    made = run(Batch.join(named), traces={"sample": 10})
    resources = [
        attributes_of(resource_metric.resource.attributes)
        for out in made
        for resource_metric in out.metrics.resource_metrics
    ]
    resources += [
        attributes_of(resource_span.resource.attributes) for out in made for resource_span in out.spans.resource_spans
    ]
    assert {resource["service.name"] for resource in resources} == {
        "bert",
        "4711",
        "unknown_service:train.py",
        "otel-zernel",
    }


def test_a_job_and_a_single_process_are_found_and_lost_in_one_line_each(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level("INFO")
    processor = make(idle_timeout="10s")
    job = list(ranks(8, zernel_job_id="bert"))
    single = batch_of([*Loop().steps(50).spans, span_of("process", 0, 2000, process_end="exit")], resource_of(7))
    feed(processor, [Batch.join([*job, single]), gauge_batch("hw.power", [(at, 1.0) for at in range(0, 30_000, 500)])])
    assert sorted(lines(caplog, "Found ")) == [
        "Found job bert: ranks 0-7 of 8 on node",
        "Found training process 7 of unknown_service on node",
    ]
    assert sorted(lines(caplog, "Lost ")) == [
        "Lost job bert: ranks 0-7 of 8 on node: no process of it is left, or none sends data",
        "Lost training process 7 of unknown_service on node: no process of it is left, or none sends data",
    ]


def test_the_span_of_a_process_s_end_passes() -> None:
    end = span_of("process", 0, 2000, process_end="signal", process_signal=9)
    worker = span_of("worker", 0, 2000, process_end="signal", process_signal=9)
    made = run(batch_of([*Loop().steps(50).spans, end, worker]))
    spans = [
        span
        for out in made
        for resource_span in out.spans.resource_spans
        for span in resource_span.scope_spans[0].spans
    ]
    assert {span.name for span in spans} >= {"process", "worker"}
    assert not [span for span in spans if span.name == "backward" and not span.parent_span_id]
    assert values_of(made, "zernel.steps")


def test_a_job_whose_ranks_begin_one_after_another_is_found_once_with_all(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level("INFO")
    first, second = ranks(2, zernel_job_id="bert")
    spans = second.edit_spans().resource_spans[0].scope_spans[0].spans
    for span in spans:
        span.start_time_unix_nano += 1_500_000_000
        span.end_time_unix_nano += 1_500_000_000
    run(Batch.join([first, second]))
    assert lines(caplog, "Found ") == ["Found job bert: ranks 0-1 of 2 on node"]


def test_a_job_with_ranks_elsewhere_is_found_with_the_ranks_here(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level("INFO")
    feed(make(), [next(ranks(2, zernel_job_id="bert"))])
    assert lines(caplog, "Found ") == ["Found job bert: rank 0 of 2 on node"]


class Counted(dict[str, Any]):
    """Attributes that count how often they are read."""

    reads = 0

    def get(self, key: str, default: Any = None) -> Any:
        type(self).reads += 1
        return super().get(key, default)


@pytest.mark.parametrize("key", ["zernel_job_id", "process_parent_pid"])
def test_the_work_of_a_report_grows_with_the_processes_and_not_with_the_jobs_besides(key: str) -> None:
    config = PhasesProcessor.Config.model_validate({})
    context = make_context("processors", "phases")

    def reads(count: int) -> float:
        processes = []
        for pid in range(2 * count):
            named: dict[str, AttributeValue] = {"zernel_rank": pid % 2, "zernel_world_size": 2, key: str(1 + pid // 2)}
            resource = resource_of(pid, **named)  # type: ignore[arg-type]  # tests pass attributes
            process = TrainingProcess(ProcessIdentity("node", pid, ""), resource, config, context)
            process.attributes = Counted(process.attributes)
            process.first_seen, process.last_seen = 10**9, 2 * 10**9
            process.phases.totals.steps["training", "loader"] = 100
            processes.append(process)
        Counted.reads = 0
        jobs = Jobs(config, context)
        assert not list(jobs.add(processes, "other", HostClock(FakeClock(), 10**9), 2 * 10**9, is_whole=True))
        return Counted.reads / len(processes)

    assert reads(100) < 1.5 * reads(10)
