"""A job has its ranks, whatever names it."""

from dataclasses import replace
from typing import Any

import pytest
from opentelemetry.proto.resource.v1.resource_pb2 import Resource

from otel_zernel.otlp.points import key_values
from otel_zernel_libraries.training.causes import JobAnswer, Unknown, lead_of
from otel_zernel_libraries.training.hangs import HungRank, HungRole, JobHang
from otel_zernel_processors.phases.emit.hangs import hang_record
from tests.exporters.live.live_runs import PROCESS, Attributes, LiveRun, durations, phase_times, points
from tests.libraries.training.causes.made_answers import ANSWER, CODED, TOKENIZES, answer_batch

NS = 1_000_000_000
HANG = JobHang(
    since=10.0,
    ranks=(HungRank(rank=1, pid=8, role=HungRole.STOPPED), HungRank(rank=0, pid=7, role=HungRole.WAITING)),
)


def rank(number: int) -> Attributes:
    return {**PROCESS, "process.pid": 10 + number, "zernel.rank": number, "zernel.world_size": 2}


async def shown(job: Attributes, *ranks: Attributes) -> Any:
    """The state of a job with these ranks. Rank 1 is late."""
    return await LiveRun().add(
        points("zernel.job.verdict", [({"zernel.job.verdict": "straggler"}, 1)], job),
        points("zernel.job.rank.lateness", [({"zernel.rank": 0}, 0.0), ({"zernel.rank": 1}, 0.2)], job),
        points("zernel.job.collective.transfer", [({}, 0.01)], job),
        points("zernel.job.step.duration", [({}, 0.5)], job),
        points("zernel.step.critical_path.time", [({"zernel.rank": 1, "zernel.phase": "gpu_compute"}, 7.0)], job),
        *(phase_times(rank, gpu_compute=1.0) for rank in ranks),
    )


@pytest.mark.parametrize(
    ("job", "more"),
    [
        ({"service.name": "train", "zernel.job.id": "4711"}, {"zernel.job.id": "4711"}),
        ({"service.name": "train"}, {"service.name": "train"}),
        ({"service.name": "x", "k8s.job.name": "train"}, {"k8s.job.name": "train"}),
        ({"service.name": "n1/5", "zernel.job.launcher": "n1/5"}, {"process.parent_pid": 5}),
        ({"service.name": "2", "zernel.world_size": "2"}, {}),
    ],
)
async def test_a_job_finds_its_ranks_by_what_names_it(job: Attributes, more: Attributes) -> None:
    state = await shown(job, *({**rank(number), **more} for number in (1, 0)))
    ((id_, found),) = state["jobs"].items()
    ids = {one["rank"]: id_ for id_, one in state["ranks"].items()}
    assert found == {
        "name": more.get("service.name", "process 10"),
        "ranks": [ids[0], ids[1]],
        "verdict": {"name": "straggler", "ranks": [ids[1]], "evidence": {"lateness": 0.2, "transfer": 0.01}},
        "step_time": 0.5,
        "critical_path": {"1": {"gpu_compute": 7.0}},
    }
    assert {one["job"] for one in state["ranks"].values()} == {id_}
    assert {one["rank"]: one["lateness"] for one in state["ranks"].values()} == {0: 0.0, 1: 0.2}


async def test_a_rank_of_a_named_job_is_none_of_the_unnamed_one() -> None:
    named: Attributes = {"service.name": "a", "zernel.job.id": "a"}
    unnamed: Attributes = {"service.name": "2", "zernel.world_size": 2}
    run = LiveRun()
    await run.add(points("zernel.job.step.duration", [({}, 1.0)], unnamed))
    await run.add(points("zernel.job.step.duration", [({}, 1.0)], named))
    state = await run.add(phase_times({**rank(0), "zernel.job.id": "a"}, gpu_compute=1.0))
    assert [one["job"] for one in state["ranks"].values()] == ["a"]


async def test_a_process_that_trains_alone_is_a_job_of_its_own() -> None:
    job = {"service.name": "train", "zernel.job.id": "4711"}
    alone = {**PROCESS, "zernel.job.id": "4711", "zernel.program": "train.py"}
    state = await shown(job, alone)
    ((id_, one),) = state["ranks"].items()
    assert one["job"] == id_
    assert state["jobs"][id_] == {"name": "train.py", "ranks": [id_]}
    assert state["jobs"]["4711"]["ranks"] == []


async def test_a_process_that_joins_a_job_is_no_job_of_its_own_any_more() -> None:
    run = LiveRun()
    await run.add(phase_times(PROCESS, gpu_compute=1.0))
    run.after(2)
    job: Attributes = {"service.name": "train", "zernel.job.id": "4711"}
    joined = {**PROCESS, "zernel.job.id": "4711", "zernel.rank": 0, "zernel.world_size": 2}
    await run.add(points("zernel.job.step.duration", [({}, 1.0)], job), phase_times(joined, gpu_compute=2.0))
    state = run.after(2)
    assert [*state["jobs"]] == [*state["shares"]] == ["4711"]


async def test_every_number_belongs_to_one_of_three_programs() -> None:
    run = LiveRun()
    one, other, third = ({**PROCESS, "process.pid": pid, "zernel.program": f"{pid}.py"} for pid in (1, 2, 3))
    await run.add(durations(0.1, resource=one), phase_times(one, data_loading=2.0))
    await run.add(durations(1.0, resource=other), phase_times(other, gpu_compute=2.0))
    await run.add(durations(5.0, resource=third), phase_times(third, unknown=2.0))
    state = run.after(1)
    assert {job["name"] for job in state["jobs"].values()} == {"1.py", "2.py", "3.py"}
    for id_, job in state["jobs"].items():
        assert job["ranks"] == [id_]
        ((_, _, counts),) = state["heat"]["columns"][id_]
        assert counts == [1]
        ((_, shares),) = state["shares"][id_]
        assert max(shares) == 1.0
    assert len({tuple(shares[0][1]) for shares in state["shares"].values()}) == 3


async def test_the_job_of_a_process_leaves_with_it() -> None:
    run = LiveRun(expiration="10s")
    await run.add(phase_times(PROCESS, gpu_compute=1.0))
    assert len(run.after(5)["jobs"]) == 1
    state = run.after(6)
    assert (state["ranks"], state["jobs"], state["shares"], state["heat"]["columns"]) == ({}, {}, {}, {})


async def test_a_rank_that_leaves_leaves_its_job() -> None:
    run = LiveRun(expiration="10s")
    job = {"service.name": "train", "zernel.job.id": "j"}
    verdict = points("zernel.job.step.duration", [({}, 1.0)], job)
    await run.add(verdict, *(phase_times({**rank(number), "zernel.job.id": "j"}, gpu_compute=1.0) for number in (0, 1)))
    run.after(9)
    await run.add(verdict, phase_times({**rank(0), "zernel.job.id": "j"}, gpu_compute=2.0))
    assert len(run.after(2)["jobs"]["j"]["ranks"]) == 1


async def test_processes_that_train_alone_take_no_place_of_a_job() -> None:
    """As many as there are ranks are shown, nothing is lost, and a job of several ranks that comes later is shown."""
    run = LiveRun()
    await run.add(*(phase_times({**PROCESS, "process.pid": pid}, gpu_compute=1.0) for pid in range(100, 300)))
    for _ in range(3):
        run.after(2)
    job: Attributes = {"service.name": "train", "zernel.job.id": "4711"}
    ranks = [phase_times({**rank(number), "zernel.job.id": "4711"}, gpu_compute=1.0) for number in (0, 1)]
    state = await run.add(points("zernel.job.step.duration", [({}, 1.0)], job), *ranks)
    assert len(state["jobs"]) == 201
    assert len(state["jobs"]["4711"]["ranks"]) == 2
    assert all(one["job"] in state["jobs"] for one in state["ranks"].values())
    assert run.dropped.counts == {}


async def test_there_are_at_most_128_jobs_besides_processes_that_train_alone() -> None:
    run = LiveRun()
    await run.add(phase_times(gpu_compute=1.0))
    state = run.after(1)
    assert len(state["jobs"]) == 1
    for number in range(134):
        await run.add(
            points("zernel.job.step.duration", [({}, 1.0)], {"service.name": "x", "zernel.job.id": f"{number}"})
        )
    assert len(run.after(1)["jobs"]) == 129
    assert len(run.after(1)["jobs"]) == 129
    assert run.dropped.counts == {"max_jobs": 6}


async def test_a_job_has_the_sentence_on_its_first_cause_and_its_advice() -> None:
    run = LiveRun()
    job: Attributes = {"service.name": "train", "zernel.job.id": "4711"}
    await run.add(phase_times({**rank(0), "zernel.job.id": "4711"}, gpu_compute=1.0))
    state = await run.add(answer_batch(ANSWER, job))
    assert state["jobs"]["4711"]["answer"] == {
        "verdict": "input_bound",
        "sentence": f"{lead_of(ANSWER)} 2 of 4 ranks seen.",
        "advice": list(TOKENIZES.advice),
        "cause": "data loading: runs Python",
        "share": 0.3024,
        "code": list(CODED.code),
        "lines": [
            {
                "line": "train.py:42 tokenize",
                "call": "transformers/tokenization_utils.py:2877 Tokenizer.__call__",
                "seconds": 0.0081,
            },
            {"line": "data/text.py:118 Corpus.clean", "seconds": 0.0031},
            {"line": "train.py:61 main", "call": "json/__init__.py:231 dumps", "seconds": 0.0009},
        ],
    }
    healthy = JobAnswer(step=0.04, steps=500, best=0.039)
    state = await run.add(answer_batch(healthy, job))
    assert state["jobs"]["4711"]["answer"] == {"verdict": "compute_bound", "sentence": lead_of(healthy), "advice": []}


async def test_a_job_says_why_no_cause_can_be_named_and_a_rank_of_it_does_not() -> None:
    run = LiveRun()
    unknown = JobAnswer(step=0.04, steps=500, best=0.04, unknown=Unknown.UNCERTAIN)
    await run.add(phase_times(PROCESS, gpu_compute=1.0))
    state = await run.add(answer_batch(replace(unknown, ranks_expected=8), PROCESS))
    assert all("answer" not in job for job in state["jobs"].values())
    state = await run.add(answer_batch(unknown, PROCESS))
    (job,) = state["jobs"].values()
    assert job["answer"] == {"verdict": "none", "sentence": lead_of(unknown), "advice": []}


async def test_a_process_that_trains_alone_has_one_too() -> None:
    run = LiveRun()
    await run.add(phase_times(PROCESS, gpu_compute=1.0))
    state = await run.add(answer_batch(ANSWER, PROCESS))
    assert [job["answer"]["verdict"] for job in state["jobs"].values()] == ["input_bound"]


async def test_a_job_that_hangs_has_the_guilty_rank_in_place_of_a_cause_until_it_goes_on() -> None:
    run = LiveRun()
    job: Attributes = {"service.name": "train", "zernel.job.id": "4711"}
    await run.add(phase_times({**rank(0), "zernel.job.id": "4711"}, gpu_compute=1.0))
    state = await run.add(answer_batch(ANSWER, job), hang_record(HANG, Resource(attributes=key_values(job)), 40 * NS))
    assert "answer" not in state["jobs"]["4711"]
    assert state["jobs"]["4711"]["hung"] == {
        "since": 10_000,
        "sentence": "Rank 1 has been stopped for 30 s. Rank 0 waits for it in a collective.",
        "advice": ["Continue it. `fg` in its shell, or `kill -CONT 8`, continues it."],
    }
    state = await run.add(points("zernel.job.hung", [({}, 0)], job))
    assert state["jobs"]["4711"]["answer"]["verdict"] == "input_bound"
