"""`why`, `live` and `websocket` get the same batches, and show the same jobs, ranks, steps and durations."""

from collections.abc import Iterable
from typing import Any

import pytest

from otel_zernel.batch import Batch
from otel_zernel_commands.why.findings import report_on
from otel_zernel_commands.why.findings.groups import groups_of
from otel_zernel_commands.why.watch import watched_state
from otel_zernel_libraries.job_choice import JobChoice
from otel_zernel_libraries.training.interval_spans import Ending
from otel_zernel_libraries.training.state import SeenProcess, TrainingState
from tests.commands.why.recorded_runs import circumstances
from tests.exporters.live.live_runs import (
    PROCESS,
    SECOND,
    START,
    Attributes,
    LiveRun,
    durations,
    ended,
    phase_times,
    points,
    recorded_batches,
    step,
)
from tests.exporters.websocket.feeds import COLLECTIVES, PEAK, USED, FeedRun, explicit, memory

LATER = "2026-01-02T00:00:00Z"
JOBS: dict[str, Attributes] = {
    "j": {"service.name": "train", "zernel.job.id": "j"},
    "k": {"service.name": "tune", "zernel.job.id": "k"},
}


def rank(job: str, number: int, host: str, pid: int) -> Attributes:
    named = {**JOBS[job], "zernel.rank": number, "zernel.world_size": 2}
    return {**PROCESS, **named, "host.name": host, "process.pid": pid}


ALONE: Attributes = {**PROCESS, "process.pid": 20, "zernel.program": "alone.py"}
REUSED: Attributes = {**ALONE, "process.creation.time": LATER, "zernel.program": "other.py"}
RANKS = {
    "j0": rank("j", 0, "n1", 10),
    "j1": rank("j", 1, "n2", 10),  # a gateway has data of two hosts with the same pids
    "k0": rank("k", 0, "n1", 11),
    "k1": rank("k", 1, "n2", 11),
}


def trained(process: Attributes, steps: int, lasts: float) -> Iterable[Batch]:
    """The data of a process that has taken so many steps of `lasts` s."""
    yield phase_times(process, gpu_compute=steps * lasts)
    yield points("zernel.steps", [({"zernel.step.kind": "training"}, steps)], process)
    yield durations(*[lasts] * steps, resource=process)
    for number in range(1, steps + 1):
        yield step(number, START + round(number * lasts * SECOND), round(lasts * SECOND), process)


def training() -> Iterable[Batch]:
    """Two jobs on two hosts, and two processes that train alone with one pid, one after the other."""
    for job in JOBS.values():
        yield points("zernel.job.step.duration", [({}, 0.5)], job)
    for steps, process in enumerate(RANKS.values(), 3):
        yield from trained(process, steps, 0.1 * steps)
        of_host = {"host.name": process["host.name"]}
        pid = process["process.pid"]
        assert isinstance(pid, int)
        yield memory(steps << 20, USED, pid, resource=of_host)
        yield memory(steps << 21, PEAK, pid, resource=of_host)
        lasts = explicit(COLLECTIVES, {0.004: 9}, process_pid=pid, zernel_nccl_operation="all_reduce")
        for of_resource in lasts.edit_metrics().resource_metrics:
            host = of_resource.resource.attributes.add(key="host.name")
            host.value.string_value = str(process["host.name"])
        yield lasts
    yield from trained(ALONE, 4, 0.2)
    yield ended(ALONE, Ending("exit", exit_code=0))
    yield points("zernel.steps", [({"zernel.step.kind": "training"}, None)], ALONE)
    yield phase_times(ALONE, gpu_compute=None)
    yield from trained(REUSED, 9, 0.3)


def seen_by_why(batches: Iterable[Batch]) -> TrainingState:
    state = watched_state()
    for batch in batches:
        state.add(batch, 0.0)
    state.settle(0.0)
    return state


def process_of(state: TrainingState, attributes: Attributes) -> SeenProcess:
    process = state.process_of(attributes, {}, 0, 0.0, is_end=True)
    assert process is not None
    return process


async def seen_by_live(batches: Iterable[Batch]) -> Any:
    return await LiveRun().add(*batches)


async def test_the_jobs_and_their_ranks_are_the_same() -> None:
    state, live = seen_by_why(training()), await seen_by_live(training())
    groups = groups_of(state.processes, state.jobs)
    jobs = {tuple(job["ranks"]) for job in live["jobs"].values()}
    assert {tuple(process.id for process in group.processes) for group in groups} == jobs
    assert {group.job.id for group in groups if group.job} == {"j", "k"} <= live["jobs"].keys()
    assert {group.title for group in groups} == {job["name"] for job in live["jobs"].values()}


@pytest.mark.parametrize("attributes", [*RANKS.values(), REUSED])
async def test_a_rank_has_the_same_steps_and_durations(attributes: Attributes) -> None:
    process, live = process_of(seen_by_why(training()), attributes), await seen_by_live(training())
    shown = live["ranks"][process.id]
    assert process.trained == shown["steps"] == len(live["timeline"][process.id]) == len(process.bars.bars)
    assert process.trained_times.percentile(50) == pytest.approx(shown["step"]["p50"], rel=0.01)
    assert process.trained_times.longest == pytest.approx(shown["step"]["p99"], rel=0.01)
    assert process.phases["gpu_compute", "scopes"] == pytest.approx(shown["times"]["gpu_compute"])


async def test_an_ended_process_is_not_current_and_its_sums_stay_as_evidence() -> None:
    process, live = process_of(seen_by_why(training()), ALONE), await seen_by_live(training())
    shown = live["ranks"][process.id]
    assert process.end is not None
    assert process.ended_at is not None
    assert shown["ended"]["code"] == process.end.code == 0
    assert (process.trained, process.source) == (4, "scopes")
    assert process.steps.current() == process.phases.current() == {}
    assert shown.keys().isdisjoint({"steps", "times", "phase"})


async def test_a_reused_pid_is_another_process() -> None:
    state, live = seen_by_why(training()), await seen_by_live(training())
    assert process_of(state, ALONE) is not process_of(state, REUSED)
    assert {process.id for process in state.processes} == live["ranks"].keys()
    by_pid = state.process_of({"host.name": "n1"}, {"process.pid": 20}, 0, 0.0, is_end=True)
    assert by_pid is process_of(state, REUSED)


async def test_the_feed_has_the_memory_and_the_latencies_of_the_same_processes() -> None:
    run = FeedRun()
    message, live = run.add(*training()), await seen_by_live(training())
    uses = {(one["key"], one["current_bytes"], one["peak_bytes"]) for one in message["gpu_utilization"]}
    assert uses == {
        (f"{process['process.pid']}:0", steps << 20, steps << 21) for steps, process in enumerate(RANKS.values(), 3)
    }
    summaries = [one["collectives"]["all_reduce"] for one in live["ranks"].values() if "collectives" in one]
    assert len(summaries) == len(RANKS)
    for summary in summaries:
        assert summary["p50"] * 1e3 == pytest.approx(message["nccl_allreduce_p50_ms"], rel=1e-3)
    assert run.drops == {}


async def test_a_recorded_job_has_the_same_ranks_steps_and_durations() -> None:
    batches = recorded_batches("gloo_DDP_a_late_rank", is_job=True)
    state, live = seen_by_why(batches), await seen_by_live(batches)
    [job] = report_on(state, JobChoice(), circumstances()).jobs
    [shown] = live["jobs"].values()
    ranks = [live["ranks"][id_] for id_ in shown["ranks"]]
    assert [(rank.rank, rank.pid, rank.steps) for rank in job.ranks] == [
        (rank["rank"], rank["pid"], rank["steps"]) for rank in ranks
    ]
    assert [rank.p50 for rank in job.ranks] == pytest.approx([rank["step"]["p50"] for rank in ranks], rel=0.01)
