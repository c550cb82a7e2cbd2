"""Processes that begin, end and share a pid; their GPUs and ranks."""

from collections.abc import Iterator

import pytest

from otel_zernel.batch import Batch
from otel_zernel_libraries.training.causes import CauseName, JobAnswer
from otel_zernel_processors.phases.emit.services import with_service
from tests.processors.phases.processing import (
    dropped,
    feed,
    in_pieces,
    last,
    log_records_of,
    make,
    phases_of,
    run,
    state,
)
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


def test_a_process_that_dies_in_a_step_is_closed_and_removed() -> None:
    processor = make(idle_timeout="5s")
    dies = Loop().steps(10).load().wait(10).do("backward", 12)
    lives = Loop().steps(500).load()
    made = feed(processor, [*in_pieces(dies.spans, pid=1), *in_pieces(lives.spans, pid=2)])
    times = [one for one, _ in values_of(made, "zernel.phase.time") if one["process.pid"] == 1]
    assert phases_of(made, 1)["unknown"] == pytest.approx(10 * 0.1 + 10)
    assert last(made, "zernel.steps", process_pid=1, zernel_step_kind="unfinished") == 1
    assert len({id(time) for time in times}) < 60
    assert values_of(made, "zernel.scheduler.tasks")[-1][1] <= 1


def test_a_reused_pid_is_another_process() -> None:
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


def test_a_process_joins_its_job_once_its_rank_is_known() -> None:
    first = Loop().steps(3)
    before = [batch_of(first.spans, resource_of(100 + rank)) for rank in range(2)]
    made = run(*before, Batch.join(ranks(late=20, transfer=1)))
    assert state(made, "zernel.job.verdict") == "straggler"


def test_the_span_of_a_whole_process_is_not_part_of_its_steps() -> None:
    processor = make()
    loop = Loop().steps(10).load()
    made = feed(processor, [batch_of([*loop.spans, span_of("process", 0, 500)])])
    assert dropped(processor) == {}
    assert last(made, "zernel.steps", zernel_step_kind="training") == 10


def test_energy_of_a_gpu_goes_to_the_phases_of_its_process() -> None:
    loop = Loop().steps(100, forward=10, backward=12, optimizer=17, tail=5).load()
    energy = gauge_batch("hw.energy", [(at, 500.0 * at / 1000) for at in range(500, 4001, 500)], zernel_gpu_index=3)
    made = run(*in_pieces(loop.spans, zernel_local_rank=3), energy)
    joules = {str(one["zernel.phase"]): value for one, value in values_of(made, "zernel.phase.energy")}
    assert sum(joules.values()) == pytest.approx(1750)
    assert joules["gpu_compute"] / sum(joules.values()) == pytest.approx(22 / 50, rel=0.02)


def output_beside_a_process_that_ends(how: str) -> list[Batch]:
    """The output for 8 s of a GPU that processes 1 and 2 share. Process 1 ends after 3 s; its counters are read once
    more."""
    loop = Loop().steps(94)
    ended = batch_of([*loop.spans, span_of("process", 0, loop.now, process_end=how)], resource_of(1))
    lives = batch_of(Loop().steps(300).spans, resource_of(2))
    energy = gauge_batch("hw.energy", [(at, 100.0 * at / 1000) for at in range(0, 9001, 500)], zernel_gpu_index=0)
    last_counts = gauge_batch("zernel.process.io.wait", [(9500, 1.0)], process_pid=1)
    processor = make(lateness="500ms")
    return [out for batch in (Batch.join([energy, ended, lives]), last_counts) for out in processor.process(batch)]


def test_a_dead_process_neither_delays_energy_nor_gets_any() -> None:
    def joules(made: list[Batch], pid: int) -> float:
        energy = values_of(made, "zernel.phase.energy")
        return sum({str(one): value for one, value in energy if one["process.pid"] == pid}.values())

    for how in ("exit", "signal"):
        made = output_beside_a_process_that_ends(how)
        assert joules(made, 1) == pytest.approx(150)
        assert joules(made, 2) == pytest.approx(150 + 550)
        assert last(made, "zernel.scheduler.tasks", type="total") == 1
    assert joules(output_beside_a_process_that_ends("exec"), 2) == pytest.approx(125)  # 1 stays a user of the GPU


def test_late_data_does_not_revive_an_ended_process() -> None:
    processor = make(lateness="500ms")
    spans = [*Loop().steps(90).spans, span_of("process", 0, 3000, process_end="signal")]
    lives = (batch_of(Loop(now=at).steps(100).spans, resource_of(2)) for at in (3000, 7000))
    feed(processor, [batch_of(spans, resource_of(1)), *lives, batch_of(spans[-5:], resource_of(1))])
    assert dropped(processor) == {"late": 5}


def test_a_dataloader_worker_gets_no_share_of_the_energy() -> None:
    energy = gauge_batch("hw.energy", [(at, 500.0 * at / 1000) for at in range(500, 4001, 500)], zernel_gpu_index=3)
    waits = gauge_batch("zernel.process.io.wait", [(at, at / 2000) for at in range(0, 5000, 100)])
    waits.edit_metrics().resource_metrics[0].resource.CopyFrom(resource_of(7, zernel_local_rank=3))
    made = run(batch_of(Loop().steps(200).load().spans, resource_of(zernel_local_rank=3)), waits, energy)
    spent = [(one["process.pid"], value) for one, value in values_of(made, "zernel.phase.energy")]
    assert {pid for pid, _ in spent} == {42}
    assert sum(value for _, value in spent[-4:]) == pytest.approx(1750)


def test_a_verdict_needs_a_few_steps() -> None:
    """Whose forward pass takes longer and longer is not unstable: without snapshots, it may be the work itself."""
    made = run(batch_of(Loop().steps(200, load=1).load(100).steps(200, load=1, forward=60).load().spans))
    assert state(made, "zernel.verdict") == "compute_bound"
    assert state(run(batch_of(Loop().steps(5).load().spans)), "zernel.verdict") == "input_bound"
    assert state(run(batch_of(Loop().steps(2).load().spans)), "zernel.verdict") == "none"


def ranks(
    late: float, transfer: float, hosts: tuple[str, str] = ("node", "node"), world_size: int = 2
) -> Iterator[Batch]:
    """Two ranks in lockstep: rank 1 arrives `late` ms after rank 0, then both wait for the `transfer`."""
    for rank in range(2):
        loop = Loop()
        for _ in range(200):
            loop.load().wait(10 + (late if rank == 1 else 0)).do("backward", 12)
            loop.do("sync", transfer + (late if rank == 0 else 0), name="c10d::Work::wait").do("optimizer", 3)
        resource = resource_of(
            100 + rank, zernel_world_size=world_size, zernel_rank=rank, k8s_job_name="bert", host_name=hosts[rank]
        )
        yield batch_of(loop.load().spans, resource)


def test_a_verdict_is_logged_with_the_first_cause_and_its_gain(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level("INFO")
    run(batch_of(Loop().steps(200, load=60).load().spans))
    (line,) = [record.getMessage() for record in caplog.records if "is input_bound" in record.getMessage()]
    assert line.startswith(
        "process 42 on node is input_bound: The training thread loses time while it loads data: this costs 60.0 ms "
    )


def test_thresholds_of_old_files_have_no_effect_and_one_warning(caplog: pytest.LogCaptureFixture) -> None:
    made = run(batch_of(Loop().steps(200, load=60).load().spans), verdict={"input_bound": 1.0, "stability": 9})
    assert state(made, "zernel.verdict") == "input_bound"
    assert [record.getMessage()[:22] for record in caplog.records] == ["verdict has no effect:"]


@pytest.mark.parametrize(
    ("late", "transfer", "verdict"), [(20, 1, "straggler"), (0, 20, "slow_link"), (0.5, 1, "input_bound")]
)
@pytest.mark.parametrize("hosts", [("node", "node"), ("a", "b")])
def test_ranks_of_a_job_are_compared(late: float, transfer: float, verdict: str, hosts: tuple[str, str]) -> None:
    made = run(Batch.join(ranks(late, transfer, hosts)))
    assert state(made, "zernel.job.verdict") == verdict
    assert last(made, "zernel.job.rank.lateness", zernel_rank=1) == pytest.approx(late / 1000)
    assert last(made, "zernel.job.collective.transfer") == pytest.approx(transfer / 1000)


def test_where_ranks_are_missing_no_cause_over_ranks_is_named() -> None:
    made = run(Batch.join(ranks(late=20, transfer=20, world_size=4)))
    answers = [JobAnswer.from_body(record.body) for record in log_records_of(made)]
    assert {(answer.ranks_seen, answer.ranks_expected) for answer in answers} == {(2, 4)}
    assert {cause.cause for answer in answers for cause in answer.causes} == {CauseName.SEGMENT}
    assert answers[-1].waits == pytest.approx(0.02, rel=0.01)
    assert state(made, "zernel.job.verdict") == "communication_bound"


def test_a_process_first_known_by_its_gpu_utilization_gets_its_own_resource_and_host() -> None:
    first = gauge_batch("zernel.gpu.process.utilization", [(0, 0.5)], process_pid=100, zernel_gpu_index=0)
    other = gauge_batch("zernel.gpu.process.utilization", [(0, 0.5)], process_pid=101, zernel_gpu_index=1)
    for batch in (first, other):
        batch.edit_metrics().resource_metrics[0].ClearField("resource")
    made = run(first, other, Batch.join(ranks(late=20, transfer=1)))
    assert state(made, "zernel.job.verdict") == "straggler"
    waits = gauge_batch("zernel.process.io.wait", [(at, at / 2000) for at in range(0, 3000, 100)])
    waits.edit_metrics().resource_metrics[0].resource.CopyFrom(resource_of(100))
    resources = [
        resource.resource
        for batch in run(first, waits)
        for resource in batch.metrics.resource_metrics
        if any(metric.name == "zernel.phase.time" for metric in resource.scope_metrics[0].metrics)
    ]
    assert resources
    assert all(resource == with_service(resource_of(100)) for resource in resources)


def test_a_worker_with_the_rank_of_its_trainer_is_ignored() -> None:
    inherited = {"zernel_world_size": 2, "zernel_rank": 1, "k8s_job_name": "bert"}
    worker = gauge_batch("zernel.process.io.wait", [(at, at / 1000) for at in range(100)])
    worker.edit_metrics().resource_metrics[0].resource.CopyFrom(resource_of(7, **inherited))  # type: ignore[arg-type]
    before = (batch_of(Loop().steps(1).spans, resource_of(100 + rank)) for rank in range(2))
    made = run(*before, worker, Batch.join(ranks(late=20, transfer=1)))
    assert state(made, "zernel.job.verdict") == "straggler"
    assert last(made, "zernel.job.rank.lateness", zernel_rank=1) == pytest.approx(0.02)


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


def test_spans_that_arrive_again_after_their_process_was_idle_are_late() -> None:
    first = batch_of(Loop().steps(40).spans, resource_of(1, "A"))
    others = [
        batch_of([span_of("sync", at, at + 1, name="cudaStreamSynchronize")], resource_of(2)) for at in (5_000, 20_000)
    ]
    processor = make(idle_timeout="2s", traces={"sample": 1})
    made = [out for batch in (first, *others, first) for out in processor.process(batch)]
    ids = [span.span_id for span in spans_of([*made, *processor.flush()]) if span.trace_id]
    assert len(set(ids)) == len(ids) > 0
    assert dropped(processor) == {"late": len(spans_of([first]))}


def test_ranks_that_have_not_trained_yet_have_no_step_time_and_no_transfer() -> None:
    """0 s would be a value."""
    evaluation = Loop()
    for _ in range(100):
        evaluation.load().wait(20)
    resources = [resource_of(100 + rank, zernel_rank=rank, zernel_world_size=2) for rank in range(2)]
    made = run(*(batch_of(evaluation.spans, resource) for resource in resources))
    assert state(made, "zernel.job.verdict") == "none"
    for name in ("zernel.job.step.duration", "zernel.job.collective.transfer", "zernel.job.rank.lateness"):
        assert values_of(made, name) == []
