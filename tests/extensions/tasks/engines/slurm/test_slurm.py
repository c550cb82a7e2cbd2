"""Tasks as jobs of Slurm, against a slurmrestd of version 0.0.40 in this process, over real HTTP."""

import subprocess
from collections.abc import AsyncIterator, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from otel_zernel.errors import CannotStart, NoAnswer
from otel_zernel.testing import ImpatientClock, make_context, until
from otel_zernel_extensions.tasks.engines.engine import LogsGone, Observed, TaskLimits, TaskRejected, TaskSpec
from otel_zernel_extensions.tasks.engines.slurm import SlurmConfig, SlurmEngine
from otel_zernel_extensions.tasks.engines.slurm.engine import script, submission
from otel_zernel_extensions.tasks.engines.slurm.observing import exit_of
from tests.extensions.tasks.engines.slurm.controller import FakeSlurm
from tests.libraries.clients.serving import served

TASK = TaskSpec("t1", ("python", "train.py", "$HOME; `x`"), "resnet", {"LR": "0.1"})
HANDLE = "101:t1"
Connect = Callable[..., AbstractAsyncContextManager[SlurmEngine]]


@pytest.fixture
async def slurm() -> FakeSlurm:
    return FakeSlurm()


@pytest.fixture
async def connect(slurm: FakeSlurm, tmp_path: Path) -> AsyncIterator[Connect]:
    (tmp_path / "token").write_text("SLURM_JWT=t0p\n", "utf-8")

    @asynccontextmanager
    async def opened(**settings: Any) -> AsyncIterator[SlurmEngine]:
        given = {"list_interval": "1ms", "user": "trainer", "output_directory": str(tmp_path), **settings}
        config = SlurmConfig(endpoint=f"http://127.0.0.1:{port}", token_file=str(tmp_path / "token"), **given)
        async with SlurmEngine(config, make_context("extensions", "tasks", clock=ImpatientClock())) as engine:
            yield engine

    async with served(slurm) as port:
        yield opened


@pytest.fixture
async def engine(connect: Connect) -> AsyncIterator[SlurmEngine]:
    async with connect() as engine:
        yield engine


async def state(engine: SlurmEngine, handle: str = HANDLE) -> Observed | None:
    return (await engine.states([handle])).get(handle)


async def output(engine: SlurmEngine, follow: bool = False, tail: int | None = None) -> bytes:
    return b"".join([piece async for piece in engine.logs(HANDLE, follow, tail)])


@pytest.mark.parametrize(
    ("states", "code", "signal", "expected"),
    [
        (["PENDING"], None, None, Observed("starting", reason="Priority")),
        (["RUNNING"], None, None, Observed("running", started=100)),
        (["COMPLETED", "COMPLETING"], 0, None, Observed("running", started=100)),
        (["COMPLETED"], 0, None, Observed("succeeded", 0, started=100, ended=160)),
        (["FAILED"], 3, None, Observed("failed", 3, reason="Priority", started=100, ended=160)),
        (["FAILED"], 0, 11, Observed("failed", None, 11, "Priority", 100, 160)),
        (["CANCELLED"], 0, 15, Observed("cancelled", None, 15, "", 100, 160)),
        (["TIMEOUT"], 0, 15, Observed("failed", None, 15, "TIMEOUT: the job ran longer than its limit", 100, 160)),
        (["NODE_FAIL"], 0, None, Observed("failed", None, None, "NODE_FAIL: the node failed", 100, 160)),
        (["PREEMPTED"], 0, 15, Observed("failed", None, 15, "PREEMPTED: another job took its place", 100, 160)),
        (
            ["OUT_OF_MEMORY"],
            0,
            9,
            Observed("failed", None, 9, "OUT_OF_MEMORY: the job used more memory than its limit", 100, 160),
        ),
    ],
)
async def test_each_state_of_slurm_is_a_state_of_the_task(
    engine: SlurmEngine, slurm: FakeSlurm, states: list[str], code: int | None, signal: int | None, expected: Observed
) -> None:
    assert await engine.submit(TASK) == HANDLE
    if states != ["PENDING"]:
        slurm.set_state(101, *states, code=code, signal=signal)
    assert await state(engine) == expected


def test_the_three_layouts_of_exit_codes_are_read() -> None:
    assert exit_of(3 << 8) == (3, None)
    assert exit_of(9) == (None, 9)
    assert exit_of({"status": "ERROR", "return_code": 3}) == (3, None)
    assert exit_of({"return_code": {"set": True, "number": 3}, "signal": {"id": {"set": False, "number": 0}}}) == (
        3,
        None,
    )
    assert exit_of(None) == (None, None)


def test_the_job_has_the_limits_in_the_words_of_the_version() -> None:
    task = replace(TASK, limits=TaskLimits(cpu=1.5, memory=(1 << 30) + 1, gpus=2, time=61))
    common: dict[str, Any] = {
        "endpoint": "http://h:6820",
        "output_directory": "/shared",
        "partition": "h100",
        "job": {"nice": 5},
    }
    old = submission(task, SlurmConfig(api_version="v0.0.38", **common))
    new = submission(task, SlurmConfig(api_version="v0.0.40", **common))
    for job in (old["job"], new["job"]):
        assert (job["cpus_per_task"], job["memory_per_node"], job["time_limit"]) == (2, 1025, 2)
        assert (job["partition"], job["nice"], job["requeue"]) == ("h100", 5, False)
    assert old["job"]["gres"] == "gpu:2"
    assert new["job"]["tres_per_node"] == "gres/gpu:2"
    assert old["job"]["environment"]["ZERNEL_TASK_ID"] == "t1"
    assert "ZERNEL_TASK_ID=t1" in new["job"]["environment"]
    assert old["script"] == new["job"]["script"]


def test_the_script_passes_arguments_as_they_are_and_only_one_job_runs_it(tmp_path: Path) -> None:
    arguments = ("a b", "$HOME", "`x`", "it's", "*", "line\nbreak")
    text = script(replace(TASK, command=("printf", "%s|", *arguments)), str(tmp_path))

    def run(job: str) -> subprocess.CompletedProcess[str]:
        environment = {"SLURM_JOB_ID": job, "PATH": "/usr/bin:/bin"}
        return subprocess.run(["/bin/sh", "-c", text], capture_output=True, text=True, env=environment, check=False)

    assert run("7").stdout == "".join(f"{argument}|" for argument in arguments)
    again = run("8")
    assert (again.stdout, again.returncode) == ("", 125)
    assert (tmp_path / "t1.exit").read_text("utf-8") == "0\n"
    assert (tmp_path / "t1.job").read_text("utf-8") == "7\n"


@pytest.mark.parametrize("program", ["A=b", "exit", "if", "exec"])
def test_the_shell_takes_no_program_for_a_word_of_its_own(tmp_path: Path, program: str) -> None:
    (tmp_path / program).symlink_to("/bin/echo")
    text = script(replace(TASK, command=(program, "3")), str(tmp_path / "shared"))
    (tmp_path / "shared").mkdir()
    environment = {"SLURM_JOB_ID": "7", "PATH": f"{tmp_path}:/usr/bin:/bin"}
    done = subprocess.run(["/bin/sh", "-c", text], capture_output=True, text=True, env=environment, check=False)
    assert done.stdout == "3\n"
    assert done.returncode == 0
    assert (tmp_path / "shared" / "t1.exit").read_text("utf-8") == "0\n"


async def test_a_task_that_is_submitted_twice_runs_once(engine: SlurmEngine, slurm: FakeSlurm) -> None:
    assert await engine.submit(TASK) == await engine.submit(TASK) == HANDLE
    assert len(slurm.submitted) == 1


async def test_a_lost_answer_to_a_submit_leaves_one_job(connect: Connect, slurm: FakeSlurm) -> None:
    slurm.lose_answer = True
    async with connect() as engine:
        with pytest.raises(NoAnswer):
            await engine.submit(TASK)
        with pytest.raises(NoAnswer, match="in progress"):
            await engine.recover(["t1"])
        assert await engine.submit(TASK) == HANDLE
    async with connect() as restarted:
        assert await restarted.recover(["t1", "t2"]) == {"t1": HANDLE}
    assert len(slurm.submitted) == 1


async def test_one_list_serves_all_tasks(connect: Connect, slurm: FakeSlurm) -> None:
    async with connect(list_interval="1h") as engine:
        handles = [await engine.submit(replace(TASK, id=f"n{number}")) for number in range(20)]
        await engine.states(handles)
        lists = slurm.requests["GET /slurm/v0.0.40/jobs"]
        assert len(await engine.states(handles)) == 20
    assert slurm.requests["GET /slurm/v0.0.40/jobs"] == lists


async def test_the_end_of_a_job_that_slurm_has_forgotten_comes_from_accounting(
    connect: Connect, slurm: FakeSlurm
) -> None:
    async with connect() as first:
        await first.submit(TASK)
    slurm.set_state(101, "FAILED", code=9)
    slurm.forget(101, into_accounting=True)
    async with connect() as second:
        found = await state(second)
    assert found
    assert (found.status, found.exit_code) == ("failed", 9)


async def test_the_end_of_a_job_that_slurm_has_forgotten_is_in_a_file(
    connect: Connect, slurm: FakeSlurm, tmp_path: Path
) -> None:
    async with connect() as first:
        await first.submit(TASK)
    slurm.forget(101)
    async with connect() as second:
        assert await state(second) is None
        (tmp_path / "t1.job").write_text("101\n", "utf-8")
        (tmp_path / "t1.exit").write_text("4\n", "utf-8")
        assert await state(second) == Observed("failed", 4)
        # Neither a repeated submission nor a recovery takes it for a task that never ran.
        assert await second.recover(["t1"]) == {"t1": HANDLE}
        assert await second.submit(TASK) == HANDLE
        await second.forget(HANDLE)
    assert not list(tmp_path.glob("t1.*"))  # noqa: ASYNC240  # a folder of the test
    assert len(slurm.submitted) == 1


async def test_an_end_stays_known_until_forget(engine: SlurmEngine, slurm: FakeSlurm) -> None:
    await engine.submit(TASK)
    slurm.set_state(101, "COMPLETED", code=0)
    await state(engine)
    slurm.forget(101)
    assert (await state(engine)) == Observed("succeeded", 0, started=100, ended=160)
    await engine.forget(HANDLE)
    assert await state(engine) is None


async def test_another_job_that_has_the_id_again_is_not_taken(engine: SlurmEngine, slurm: FakeSlurm) -> None:
    await engine.submit(TASK)
    slurm.jobs[101]["name"] = "zernel-default-other"
    assert await state(engine) is None


async def test_cancel_ends_every_job_of_the_task_and_keeps_a_result(engine: SlurmEngine, slurm: FakeSlurm) -> None:
    await engine.submit(TASK)
    slurm.jobs[150] = {**slurm.jobs[101], "job_id": 150}  # from a repeated submission
    await engine.cancel(HANDLE)
    assert slurm.jobs[150]["job_state"] == ["CANCELLED"]
    assert (found := await state(engine))
    assert found.status == "cancelled"
    await engine.submit(replace(TASK, id="t2"))
    slurm.set_state(102, "COMPLETED", code=0)
    await engine.cancel("102:t2")
    assert (await engine.states(["102:t2"]))["102:t2"].status == "succeeded"
    await engine.cancel("999:gone")


@pytest.mark.parametrize("refusal", [(500, 1001, "slurmctld is away"), (200, 1001, "slurmctld is away")])
async def test_states_are_unknown_while_the_controller_is_away_never_lost(
    engine: SlurmEngine, slurm: FakeSlurm, refusal: tuple[int, int, str]
) -> None:
    await engine.submit(TASK)
    slurm.refusal = refusal
    with pytest.raises(NoAnswer, match="slurmctld is away"):
        await state(engine)


async def test_refusals_for_good_and_for_now_are_told_apart(engine: SlurmEngine, slurm: FakeSlurm) -> None:
    await engine.states([])
    submit = engine._client.call
    slurm.refusal = (500, 2000, "Invalid partition name specified")

    async def only_submissions(method: str, path: str, **more: Any) -> Any:
        slurm.refusal = refusal if method == "POST" else None
        return await submit(method, path, **more)

    engine._client.call = only_submissions  # type: ignore[method-assign]
    refusal = (500, 2000, "Invalid partition name specified")
    with pytest.raises(TaskRejected, match="Invalid partition name"):
        await engine.submit(TASK)
    assert await engine.recover(["t1"]) == {}
    refusal = (500, 1001, "Unable to contact slurm controller")
    with pytest.raises(NoAnswer, match="Unable to contact"):
        await engine.submit(TASK)


async def test_a_replaced_token_is_used(connect: Connect, slurm: FakeSlurm, tmp_path: Path) -> None:
    async with connect() as engine:
        slurm.token = "second"
        with pytest.raises(NoAnswer, match="check the token and its user"):
            await engine.submit(TASK)
        (tmp_path / "token").write_text("second", "utf-8")
        await until(lambda: engine._client._files.value[0].headers["x-slurm-user-token"] == "second")
        assert await engine.submit(TASK) == HANDLE


async def test_logs_are_read_from_the_shared_disk(engine: SlurmEngine, slurm: FakeSlurm, tmp_path: Path) -> None:
    await engine.submit(TASK)
    with pytest.raises(LogsGone, match=r"the output is in .*/t1.log on the disk of the cluster"):
        await output(engine)
    log = tmp_path / "t1.log"
    log.write_bytes(b"one\ntwo\n" + b"x" * 100_000 + b"\nlast")
    slurm.set_state(101, "RUNNING")
    assert await output(engine, tail=1) == b"last"
    assert await output(engine, tail=2) == b"x" * 100_000 + b"\nlast"
    assert await output(engine, tail=0) == b""
    assert await output(engine, tail=9) == log.read_bytes()
    read = b""
    async for piece in engine.logs(HANDLE, follow=True, tail=None):
        read += piece
        if read.endswith(b"last"):
            with log.open("ab") as file:
                file.write(b" line\n")
            slurm.set_state(101, "COMPLETED", code=0)
    assert read == log.read_bytes()


async def test_errors_of_the_configuration_name_the_key_and_the_remedy(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match=r"write http://host:6820 or unix:/run/slurmrestd.sock"):
        SlurmConfig(endpoint="host:6820", output_directory="/shared")
    with pytest.raises(ValueError, match=r"v0.0.36 is too old"):
        SlurmConfig(endpoint="http://h:6820", output_directory="/shared", api_version="v0.0.36")
    with pytest.raises(ValueError, match="must be an absolute path"):
        SlurmConfig(endpoint="http://h:6820", output_directory="shared")
    (tmp_path / "token").write_text("no.claims.here", "utf-8")
    config = SlurmConfig(endpoint="http://h:6820", output_directory="/s", token_file=str(tmp_path / "token"))
    with pytest.raises(CannotStart, match=r"extensions::tasks::slurm::user: the token in .* names no user"):
        await SlurmEngine(config, make_context("extensions", "tasks")).__aenter__()
