"""Tasks as jobs of a real Slurm on this machine, with a token, by slurmrestd."""

import shutil
import tempfile
from collections.abc import AsyncIterator, Iterator
from dataclasses import replace
from pathlib import Path

import httpx
import pytest

from otel_zernel.clock import SystemClock
from otel_zernel.testing import make_context
from otel_zernel_extensions.tasks.engines.engine import Observed, TaskLimits, TaskRejected, TaskSpec
from otel_zernel_extensions.tasks.engines.slurm import SlurmConfig, SlurmEngine
from otel_zernel_extensions.tasks.engines.slurm.engine import submission
from tests.extensions.tasks.engines.slurm.cluster import VERSION, Slurm, running

pytestmark = pytest.mark.timeout(300)


@pytest.fixture(scope="module")
def slurm() -> Iterator[Slurm]:
    # slurmrestd, which is not root, has to reach its configuration.
    folder = Path(tempfile.mkdtemp(prefix="slurm-"))
    folder.chmod(0o755)
    try:
        with running(folder) as cluster:
            yield cluster
    finally:
        shutil.rmtree(folder, ignore_errors=True)


@pytest.fixture
def config(slurm: Slurm) -> SlurmConfig:
    settings = {
        "endpoint": slurm.endpoint,
        "api_version": VERSION,
        "token_file": slurm.token_file,
        "output_directory": slurm.directory,
        "list_interval": "200ms",
        "request_timeout": "30s",
    }
    return SlurmConfig.model_validate(settings)


@pytest.fixture
async def engine(config: SlurmConfig) -> AsyncIterator[SlurmEngine]:
    async with SlurmEngine(config, make_context("extensions", "tasks", clock=SystemClock())) as engine:
        yield engine


async def until_state(engine: SlurmEngine, handle: str, *statuses: str) -> Observed:
    while (state := (await engine.states([handle]))[handle]).status not in statuses:
        await SystemClock().sleep(0.1)
    return state


async def test_a_task_runs_with_its_arguments_and_its_exit_code_and_output_arrive(engine: SlurmEngine) -> None:
    code = "import os, sys; print(os.environ['ZERNEL_JOB_ID'], sys.argv[1:], os.getcwd()); sys.exit(3)"
    task = TaskSpec(
        "args", ("/usr/bin/python3", "-c", code, "a b", "$HOME", "it's"), env={"X": "1"}, working_dir="/tmp"
    )
    handle = await engine.submit(task)
    output = b"".join([piece async for piece in engine.logs(handle, follow=True, tail=None)])
    assert output == b"args ['a b', '$HOME', \"it's\"] /tmp\n"
    found = await until_state(engine, handle, "failed")
    assert (found.exit_code, found.signal, found.reason) == (3, None, "")
    assert await engine.submit(task) == handle, "it ran twice"
    succeeded = await engine.submit(TaskSpec("ok", ("true",)))
    assert (await until_state(engine, succeeded, "succeeded")).exit_code == 0


async def test_cancel_ends_running_and_waiting_tasks(engine: SlurmEngine) -> None:
    first = await engine.submit(TaskSpec("first", ("sleep", "600"), limits=TaskLimits(cpu=2)))
    waiting = await engine.submit(TaskSpec("waiting", ("sleep", "600"), limits=TaskLimits(cpu=2)))
    await until_state(engine, first, "running")
    assert (await until_state(engine, waiting, "starting")).status == "starting"
    await engine.cancel(waiting)
    await engine.cancel(first)
    await until_state(engine, waiting, "cancelled")
    await until_state(engine, first, "cancelled")
    await engine.cancel(first)
    await engine.cancel("999999:first")


async def test_a_second_job_of_one_task_does_not_run_the_command(
    engine: SlurmEngine, config: SlurmConfig, slurm: Slurm
) -> None:
    """As after a submission whose answer was lost, and that was repeated too early."""
    task = TaskSpec("twice", ("sh", "-c", f"echo ran >>{slurm.directory}/ran; sleep 1"))
    handle = await engine.submit(task)
    headers = dict(engine._client._files.value[0].headers)
    async with httpx.AsyncClient(base_url=slurm.endpoint, headers=headers) as client:
        answer = await client.post(f"/slurm/{VERSION}/job/submit", json=submission(task, config), timeout=60)
    second = f"{answer.json()['job_id']}:twice"
    assert (await until_state(engine, second, "failed", "succeeded")).exit_code == 125
    assert (await until_state(engine, handle, "succeeded")).exit_code == 0
    assert Path(slurm.directory, "ran").read_text("utf-8") == "ran\n"  # noqa: ASYNC240  # a small file


async def test_a_restarted_collector_finds_its_jobs(engine: SlurmEngine, config: SlurmConfig) -> None:
    handle = await engine.submit(TaskSpec("found", ("sh", "-c", "sleep 1; exit 5")))
    async with SlurmEngine(config, make_context("extensions", "tasks", clock=SystemClock())) as restarted:
        assert await restarted.recover(["found", "other"]) == {"found": handle}
        assert (await until_state(restarted, handle, "failed")).exit_code == 5


async def test_limits_reach_slurm_and_impossible_ones_are_refused(engine: SlurmEngine, slurm: Slurm) -> None:
    limits = TaskLimits(cpu=1, memory=100 << 20, gpus=1, time=90)
    handle = await engine.submit(TaskSpec("limits", ("sleep", "600"), limits=limits))
    shown = slurm.command("scontrol", "show", "job", handle.partition(":")[0])
    await engine.cancel(handle)
    assert "TimeLimit=00:02:00" in shown
    assert "MinMemoryNode=100M" in shown
    assert "gpu:1" in shown
    with pytest.raises(TaskRejected, match="configuration is not available"):
        await engine.submit(TaskSpec("greedy", ("true",), limits=replace(limits, gpus=64)))
