"""Tasks as real processes of this machine."""

import asyncio
import os
import signal
import sys
from pathlib import Path

import pytest

from otel_zernel.clock import SystemClock
from otel_zernel.errors import CannotStart
from otel_zernel.testing import make_context, until
from otel_zernel_extensions.tasks.engines.local import LocalEngine, keeper
from otel_zernel_extensions.tasks.engines.local.config import LocalConfig
from otel_zernel_extensions.tasks.engines.local.folder import TaskFolder
from tests.extensions.tasks.running import SH, processes_of, running

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="tasks need Linux")


APART = "setsid sh -c 'touch apart; exec sleep 1000' & while [ ! -e apart ]; do sleep 0.01; done;"
"""Starts a process that leaves the session and the process group of the task."""


def unique(name: str) -> str:
    """An id that no other run of the tests has at the same time."""
    return f"{name}-{os.getpid()}"


async def test_the_exit_code_and_the_output_of_a_command_are_kept(tmp_path: Path) -> None:
    async with running(tmp_path) as client:
        await client.shell("a", "echo out; echo err >&2; exit 3")
        await client.shell("b", "true")
        failed = await client.end("a")
        assert (failed["status"], failed["exit_code"]) == ("failed", 3)
        assert await client.log("a") == b"out\nerr\n"
        assert (await client.end("b"))["status"] == "succeeded"
        assert failed["created"] <= failed["started"] <= failed["ended"]


async def test_arguments_reach_the_command_as_they_are(tmp_path: Path) -> None:
    odd = ["$HOME", "a b", "*", ";exit 9", "\n", "ö", ""]
    program = "import sys, json; print(json.dumps(sys.argv[1:]))"
    async with running(tmp_path) as client:
        await client.post(id="a", command=[sys.executable, "-c", program, *odd])
        assert (await client.end("a"))["status"] == "succeeded"
        assert eval(await client.log("a")) == odd  # JSON of texts


async def test_a_command_that_cannot_be_executed_fails_with_the_reason(tmp_path: Path) -> None:
    (tmp_path / "text").write_text("no program")
    async with running(tmp_path / "tasks") as client:
        await client.post(id="a", command=["/no/such/program"])
        await client.post(id="b", command=[str(tmp_path / "text")])
        await client.post(id="c", command=["true"], working_dir="/no/such/folder")
        missing, unusable, nowhere = [await client.end(one) for one in "abc"]
    assert (missing["exit_code"], unusable["exit_code"]) == (127, 126)
    assert "/no/such/program: No such file or directory" in missing["reason"]
    assert "/no/such/folder" in nowhere["reason"]


async def test_a_signal_that_ends_the_command_is_reported(tmp_path: Path) -> None:
    async with running(tmp_path) as client:
        await client.shell("a", "kill -SEGV $$")
        task = await client.end("a")
    assert (task["status"], task["signal"], task.get("exit_code")) == ("failed", signal.SIGSEGV, None)


async def test_cancel_ends_every_process_of_the_task(tmp_path: Path) -> None:
    id_ = unique("cancel")
    async with running(tmp_path, local={"grace": "200ms"}) as client:
        await client.shell(id_, f"trap '' TERM; sleep 1000 & {APART} echo ready; while :; do sleep 1; done")
        await client.has_logged(id_, b"ready")
        assert processes_of(id_)
        assert (await client.delete(id_)).status == 202
        task = await client.end(id_)
        assert (task["status"], task["signal"]) == ("cancelled", signal.SIGKILL)
        assert processes_of(id_) == []
        assert (await client.delete(id_)).status == 200


async def test_a_command_that_ends_leaves_no_process_behind(tmp_path: Path) -> None:
    id_ = unique("left")
    async with running(tmp_path) as client:
        await client.shell(id_, f"sleep 1000 & {APART} exit 0")
        assert (await client.end(id_))["status"] == "succeeded"
        assert processes_of(id_) == []


async def test_sigterm_lets_the_command_end_by_itself(tmp_path: Path) -> None:
    async with running(tmp_path) as client:
        await client.shell("a", "trap 'echo saved; exit 5' TERM; echo ready; while :; do sleep 0.05; done")
        await client.has_logged("a", b"ready")
        await client.delete("a")
        task = await client.end("a")
        assert (task["status"], task["exit_code"]) == ("cancelled", 5)
        assert b"saved" in await client.log("a")


async def test_sigterm_reaches_every_process_of_the_group(tmp_path: Path) -> None:
    child = "trap 'echo child saved; exit 0' TERM; echo ready; while :; do sleep 0.05; done"
    async with running(tmp_path) as client:
        await client.shell("a", f"trap 'wait; exit 3' TERM; sh -c \"{child}\" & wait")
        await client.has_logged("a", b"ready")
        await client.delete("a")
        assert (await client.end("a"))["exit_code"] == 3
        assert b"child saved" in await client.log("a")


async def test_the_command_gets_its_ids_and_no_variable_of_the_collector(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SECRET_OF_THE_COLLECTOR", "1")
    async with running(tmp_path) as client:
        await client.post(id="a", name="bert", command=["env"], env={"X": "1"})
        await client.end("a")
        lines = (await client.log("a")).decode().splitlines()
    wanted = {"X=1", "ZERNEL_TASK_ID=a", "ZERNEL_JOB_ID=a", "OTEL_SERVICE_NAME=bert"}
    assert wanted <= {*lines}
    assert "OTEL_RESOURCE_ATTRIBUTES=zernel.job.id=a,zernel.task.id=a" in lines
    assert not any(line.startswith("SECRET") for line in lines)


async def test_a_task_survives_a_restart_and_its_end_is_found(tmp_path: Path) -> None:
    go = tmp_path / "go"
    async with running(tmp_path / "tasks") as client:
        await client.shell("a", f"while [ ! -e {go} ]; do sleep 0.02; done; exit 4")
        await client.reaches("a", "running")
    go.touch()
    async with running(tmp_path / "tasks") as client:
        assert (await client.end("a"))["exit_code"] == 4


async def test_a_task_whose_keeper_is_killed_is_lost_and_its_processes_end(tmp_path: Path) -> None:
    id_ = unique("lost")
    async with running(tmp_path) as client:
        await client.shell(id_, f"{APART} echo $PPID; sleep 1000")
        await client.has_logged(id_, b"\n")
        os.kill(int(await client.log(id_)), signal.SIGKILL)
        task = await client.end(id_)
        assert task["status"] == "lost"
        assert "exit_code" not in task
        await until(lambda: not processes_of(id_), within=60)


async def test_a_lost_task_ends_no_process_of_another_collector_with_the_same_id(tmp_path: Path) -> None:
    id_ = unique("same")
    async with running(tmp_path / "one") as one, running(tmp_path / "two") as two:
        for client in (one, two):
            await client.shell(id_, "echo $PPID; exec sleep 1000")
            await client.has_logged(id_, b"\n")
            await client.reaches(id_, "running")
        os.kill(int(await one.log(id_)), signal.SIGKILL)
        assert (await one.end(id_))["status"] == "lost"
        await until(lambda: len(processes_of(id_)) == 1, within=60)
        assert (await two.get(id_))["status"] == "running"
        await two.delete(id_)
        assert (await two.end(id_))["status"] == "cancelled"


async def test_logs_are_followed_to_the_end_of_the_task(tmp_path: Path) -> None:
    go = tmp_path / "go"
    async with running(tmp_path / "tasks") as client:
        await client.shell("a", f"echo one; echo two; while [ ! -e {go} ]; do sleep 0.02; done; echo three")
        await client.has_logged("a", b"two\n")
        async with client.api.stream("/api/tasks/a/logs?follow=true&tail=1") as stream:
            assert (await stream.start())[0] == 200
            assert await stream.part() == b"two\n"
            go.touch()
            assert await stream.part() == b"three\n"
            assert await stream.part() == b""
        assert await client.log("a", "?tail=0") == b""


async def test_a_task_whose_output_was_followed_to_its_end_has_ended(tmp_path: Path) -> None:
    async with running(tmp_path, poll_interval="1h") as client:
        await client.shell("a", "echo one; exit 3")
        async with asyncio.timeout(60):
            while (await client.api.get("/api/tasks/a/logs?follow=true")).body != b"one\n":  # noqa: ASYNC110
                await asyncio.sleep(0.01)
        assert (await client.get("a"))["exit_code"] == 3


async def test_a_queued_task_that_is_cancelled_never_runs(tmp_path: Path) -> None:
    async with running(tmp_path, max_running=1) as client:
        await client.shell("a", "sleep 1000")
        await client.reaches("a", "running")
        await client.shell("b", f"touch {tmp_path}/b-ran")
        answer = await client.delete("b")
        assert (answer.status, answer.json["status"]) == (200, "cancelled")
        await client.delete("a")
        await client.end("a")
        await client.shell("c", "true")
        await client.end("c")
        assert not (tmp_path / "b-ran").exists()
        assert (await client.get("b"))["status"] == "cancelled"


async def test_a_task_that_was_prepared_but_never_claimed_does_not_start_after_its_recovery(tmp_path: Path) -> None:
    folder = TaskFolder(tmp_path / "a")
    task = {"command": [*SH, f"touch {tmp_path}/ran"], "environment": {}, "working_dir": None, "limits": {"time": None}}
    folder.prepare({**task, "grace": 1, "max_log_size": 1 << 20, "cgroup": None, "rlimits": {}, "cpus": []})
    async with LocalEngine(LocalConfig(), make_context("extensions", "tasks", clock=SystemClock()), tmp_path) as engine:
        assert await engine.recover(["a"]) == {}
    late = await asyncio.create_subprocess_exec(sys.executable, "-I", "-S", keeper.__file__, str(folder.path))
    await late.wait()
    assert not (tmp_path / "ran").exists()


async def test_expired_tasks_and_their_output_are_deleted(tmp_path: Path) -> None:
    async with running(tmp_path, max_finished=1) as client:
        for id_ in "abc":
            await client.shell(id_, "true")
            await client.end(id_)
        await until(lambda: [one.name for one in (tmp_path / "local").iterdir()] == ["c"], within=60)
        assert (await client.api.get("/api/tasks/a")).status == 404
        assert (await client.get("c"))["status"] == "succeeded"


async def test_other_users_cannot_read_the_stored_environments(tmp_path: Path) -> None:
    def open_files() -> list[str]:
        return [one.name for one in tmp_path.iterdir() if one.stat().st_mode & 0o077]

    async with running(tmp_path) as client:
        await client.shell("a", "true", env={"TOKEN": "secret"})
        await client.end("a")
        assert open_files() == []


async def test_a_directory_to_which_every_user_may_write_is_refused(tmp_path: Path) -> None:
    (tmp_path / "tasks").mkdir()
    (tmp_path / "tasks").chmod(0o1777)
    with pytest.raises(CannotStart, match=r"extensions::tasks::directory: every user may write to .*; chmod 700 it"):
        await running(tmp_path / "tasks").__aenter__()
    (tmp_path / "tasks").chmod(0o2775)  # a volume of Kubernetes with fsGroup
    async with running(tmp_path / "tasks") as client:
        await client.shell("a", "true")
        assert (await client.end("a"))["status"] == "succeeded"


async def test_a_relative_directory_is_that_of_the_start(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    async with running(Path("tasks")) as client:
        await client.shell("a", "echo here")
        assert (await client.end("a"))["status"] == "succeeded"
        assert await client.log("a") == b"here\n"
