"""Jobs that slurmctld has forgotten: they are lost only if the database says that it has no end of them."""

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from otel_zernel.testing import FakeClock, StandingClock, make_context
from otel_zernel_extensions.tasks.engines.engine import Observed, TaskSpec
from otel_zernel_extensions.tasks.engines.slurm import SlurmConfig, SlurmEngine
from tests.extensions.tasks.engines.slurm.controller import FakeSlurm
from tests.libraries.clients.serving import served

HANDLE = "101:t1"


@pytest.fixture
async def slurm() -> FakeSlurm:
    return FakeSlurm()


@pytest.fixture
def clock() -> FakeClock:
    return StandingClock()


@pytest.fixture
async def engine(slurm: FakeSlurm, tmp_path: Path, clock: FakeClock) -> AsyncIterator[SlurmEngine]:
    """An engine whose job 101 was forgotten by slurmctld after it had run."""
    (tmp_path / "token").write_text("t0p", "utf-8")
    async with served(slurm) as port:
        given: dict[str, Any] = {"token_file": str(tmp_path / "token"), "user": "u", "list_interval": "1ms"}
        config = SlurmConfig(endpoint=f"http://127.0.0.1:{port}", output_directory=str(tmp_path), **given)
        async with SlurmEngine(config, make_context("extensions", "tasks", clock=clock)) as engine:
            assert await engine.submit(TaskSpec("t1", ("true",))) == HANDLE
            slurm.set_state(101, "FAILED", code=9)
            slurm.forget(101, into_accounting=True)
            yield engine


async def state(engine: SlurmEngine) -> Observed | None:
    return (await engine.states([HANDLE])).get(HANDLE)


@pytest.mark.parametrize(
    "failure",
    [
        (500, 7000, "Failed connecting to slurmdbd"),
        (200, 7000, "Failed connecting to slurmdbd"),
        (200, 9000, "Query empty or incorrect type"),
        (502, 0, "bad gateway"),
    ],
)
async def test_a_forgotten_job_waits_until_the_database_answers(
    engine: SlurmEngine, slurm: FakeSlurm, clock: FakeClock, failure: tuple[int, int, str]
) -> None:
    slurm.database_refusal = failure
    found = await state(engine)
    assert found
    assert found.status == "starting"
    assert "its accounting does not answer" in found.reason
    assert failure[2] in found.reason
    asked = slurm.requests["GET /slurmdb/v0.0.40/job/101"]
    slurm.database_refusal = None
    await state(engine)
    assert slurm.requests["GET /slurmdb/v0.0.40/job/101"] == asked, "a database that fails is asked again at once"
    clock.advance(31)
    assert (ended := await state(engine))
    assert (ended.status, ended.exit_code) == ("failed", 9)


async def test_the_file_of_the_job_has_the_exit_code_while_the_database_is_away(
    engine: SlurmEngine, slurm: FakeSlurm, tmp_path: Path
) -> None:
    slurm.database_refusal = (500, 7000, "Failed connecting to slurmdbd")
    (tmp_path / "t1.exit").write_text("9\n", "utf-8")
    assert await state(engine) == Observed("failed", 9)


async def test_a_job_whose_end_has_not_reached_the_database_waits(engine: SlurmEngine, slurm: FakeSlurm) -> None:
    slurm.accounting[101]["state"] = {"current": "RUNNING", "reason": "None"}
    found = await state(engine)
    assert found
    assert found.status == "starting"
    assert "its accounting has no end of it yet; see sacctmgr show runawayjobs" in found.reason


@pytest.mark.parametrize("answer", [None, (500, 9003, "Nothing found with query"), (404, 0, "no such URL")])
async def test_a_job_that_the_database_does_not_have_is_lost(
    engine: SlurmEngine, slurm: FakeSlurm, answer: tuple[int, int, str] | None
) -> None:
    slurm.accounting.clear()
    slurm.database_refusal = answer
    assert await state(engine) is None


async def test_jobs_that_wait_for_the_database_cause_no_further_lists(
    slurm: FakeSlurm, engine: SlurmEngine, clock: FakeClock
) -> None:
    engine._jobs._interval = 3600
    slurm.database_refusal = (500, 7000, "Failed connecting to slurmdbd")
    await state(engine)
    lists = slurm.requests["GET /slurm/v0.0.40/jobs"]
    for _ in range(5):
        assert (await state(engine) or Observed("failed")).status == "starting"
    assert slurm.requests["GET /slurm/v0.0.40/jobs"] == lists


async def test_a_database_that_is_away_does_not_hinder_other_tasks(engine: SlurmEngine, slurm: FakeSlurm) -> None:
    submit = await engine.submit(TaskSpec("t2", ("true",)))
    slurm.set_state(102, "COMPLETED", code=0)
    slurm.database_refusal = (500, 7000, "Failed connecting to slurmdbd")
    wait = await asyncio.wait_for(engine.states([HANDLE, submit]), 60)
    assert (wait[HANDLE].status, wait[submit].status) == ("starting", "succeeded")
