"""Local tasks on disks that are full, fail or hold damaged files.

The limits of local tasks: time, memory, CPUs, GPUs, output.
"""

import asyncio
import json
import os
import sys
import tracemalloc
from collections.abc import Iterator
from pathlib import Path

import pytest

from otel_zernel.clock import SystemClock
from otel_zernel.errors import NoAnswer
from otel_zernel.testing import make_context, until
from otel_zernel_extensions.tasks import TasksExtension
from otel_zernel_extensions.tasks.config import TasksConfig
from otel_zernel_extensions.tasks.engines.engine import ENDED, TaskSpec
from otel_zernel_extensions.tasks.engines.local import LocalEngine
from otel_zernel_extensions.tasks.engines.local.config import LocalConfig
from otel_zernel_extensions.tasks.engines.local.engine import output_of
from otel_zernel_extensions.tasks.engines.local.folder import TaskFolder
from tests.extensions.tasks.running import running
from tests.reliability.journals.disks import fill, small_disk

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="tasks need Linux")
DAMAGED = ["", "{}", "[]", "null", "{", '{"pid": "1", "start": 2}', '{"pid": 0, "start": 0}', '{"start": 1}']


@pytest.fixture
def disk(tmp_path: Path) -> Iterator[Path]:
    with small_disk(tmp_path / "disk", "4m") as folder:
        yield folder


@pytest.mark.parametrize("content", DAMAGED)
async def test_a_damaged_claim_makes_one_task_lost_and_hinders_no_other(tmp_path: Path, content: str) -> None:
    async with running(tmp_path) as client:
        await client.shell("a", "sleep 1000")
        await client.reaches("a", "running")
        keeper = json.loads((tmp_path / "local/a/claim").read_text())["pid"]
        (tmp_path / "local/a/claim").write_text(content)
        await client.shell("b", "exit 3")
        assert (await client.end("b"))["exit_code"] == 3
        assert (await client.end("a"))["status"] == "lost"
        os.kill(keeper, 15)


@pytest.mark.parametrize("content", DAMAGED)
async def test_a_damaged_file_about_the_command_changes_no_result(tmp_path: Path, content: str) -> None:
    go = tmp_path / "go"
    async with running(tmp_path / "tasks") as client:
        await client.shell("a", f"while [ ! -e {go} ]; do sleep 0.02; done; exit 4")
        await client.reaches("a", "running")
        for name in ("command", "cut"):
            (tmp_path / f"tasks/local/a/{name}").write_text(content)
        await client.shell("b", "true")
        await client.end("b")
        go.touch()
        assert (await client.end("a"))["exit_code"] == 4


async def test_two_keepers_of_one_task_run_it_once_and_both_leave_the_table_of_processes(tmp_path: Path) -> None:
    context = make_context("extensions", "tasks", clock=SystemClock())
    async with LocalEngine(LocalConfig(), context, tmp_path / "local") as engine:
        task = TaskSpec("a", ("/bin/sh", "-c", f"echo ran >> {tmp_path}/ran"))
        folder = TaskFolder(tmp_path / "local" / "a")
        for _ in range(2):  # as two submissions that overlap
            await asyncio.to_thread(engine._start, task, folder, ())
        keepers = engine._keepers.copy()
        assert len(keepers) == 2
        async with asyncio.timeout(60):
            while engine._keepers:
                await engine.states(["a"])
                await asyncio.sleep(0.01)
        assert not [pid for pid in keepers if exists(pid)]
        assert (await engine.states(["a"]))["a"].exit_code == 0
    assert (tmp_path / "ran").read_text() == "ran\n"


async def test_a_tail_of_a_long_output_takes_little_memory(tmp_path: Path) -> None:
    folder = TaskFolder(tmp_path)
    lines = [b"%d: %s\n" % (number, b"x" * 1000) for number in range(20_000)]
    folder.output.write_bytes(b"".join(lines))
    tracemalloc.start()
    try:
        pieces = [piece async for piece in output_of(folder, SystemClock(), False, 100)]
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert b"".join(pieces) == b"".join(lines[-100:])
    assert peak < 1 << 20
    everything = [piece async for piece in output_of(folder, SystemClock(), False, 100_000)]
    assert len(b"".join(everything)) == 8 << 20


@pytest.mark.parametrize("data", [b"", b"\n", b"\n\n", b"a", b"a\n", b"a\nb", b"a\n\nb\n", b"x" * 70_000 + b"\ny\n"])
@pytest.mark.parametrize("tail", [0, 1, 2, 3])
async def test_the_last_lines_are_those_of_the_command_tail(tmp_path: Path, data: bytes, tail: int) -> None:
    folder = TaskFolder(tmp_path)
    folder.output.write_bytes(data)
    join = b"".join([piece async for piece in output_of(folder, SystemClock(), False, tail)])
    assert join == b"".join(data.splitlines(keepends=True)[-tail:] if tail else [])


async def test_an_output_that_cannot_be_read_is_one_sentence_with_503(tmp_path: Path) -> None:
    async with running(tmp_path) as client:
        await client.shell("a", "echo one")
        await client.end("a")
        output = tmp_path / "local/a/output"
        output.unlink()
        output.mkdir()  # reading a directory fails, as reading a damaged disk does
        for query in ("", "?tail=1", "?follow=true"):
            answer = await client.api.get(f"/api/tasks/a/logs{query}")
            assert answer.status == 503
            assert answer.json["error"].startswith("the output cannot be read now: the disk fails: Is a directory")


async def test_a_disk_that_fails_in_the_middle_of_an_output_ends_it_with_a_sentence(tmp_path: Path) -> None:
    async with running(tmp_path) as client:
        await client.shell("a", "echo one; sleep 1000")
        await client.has_logged("a", b"one\n")
        output = tmp_path / "local/a/output"
        async with client.api.stream("/api/tasks/a/logs?follow=true") as stream:
            assert (await stream.start())[0] == 200
            assert await stream.part() == b"one\n"
            output.unlink()
            output.mkdir()
            assert b"[the rest of the output cannot be read now: the disk fails: " in await stream.part()
            assert await stream.part() == b""
        await client.delete("a")
        await client.end("a")


async def test_a_full_disk_refuses_requests_and_loses_neither_tasks_nor_exit_codes(tmp_path: Path, disk: Path) -> None:
    go = tmp_path / "go"
    async with running(disk / "tasks") as client:
        await client.shell("a", f"while [ ! -e {go} ]; do sleep 0.02; done; exit 7")
        await client.reaches("a", "running")
        await client.shell("b", "sleep 1000")
        await client.reaches("b", "running")
        filler = fill(disk)
        refusals = [await client.post(id=f"c{number}", command=["true", "x" * 5000]) for number in range(5)]
        refused = next(refusal for refusal in refusals if refusal.status != 201)
        assert refused.status == 503
        assert "the tasks cannot be stored or read now: database or disk is full" in refused.json["error"]
        assert (await client.get("a"))["status"] == "running"
        assert (await client.get("b"))["status"] == "running"
        go.touch()
        await until_ended(disk / "tasks/local/a")
        filler.unlink()
        assert (await client.end("a"))["exit_code"] == 7
        assert (await client.delete("b")).status == 202
        assert (await client.end("b"))["status"] == "cancelled"
        for number, answer in enumerate(refusals):
            if answer.status == 201:
                assert (await client.end(f"c{number}"))["status"] == "succeeded"
            else:
                assert (await client.api.get(f"/api/tasks/c{number}")).status == 404
        assert (await client.post(id="d", command=["true"])).status == 201
        assert (await client.end("d"))["status"] == "succeeded"


async def until_ended(folder: Path) -> None:
    """Returns when the command of a task has ended, whether its end could be written or not."""
    command = json.loads((folder / "command").read_text())["pid"]
    await until(lambda: not exists(command), within=60)


def exists(pid: int) -> bool:
    return Path(f"/proc/{pid}").exists()


async def test_a_task_that_starts_on_a_full_disk_waits_until_there_is_room(disk: Path) -> None:
    context = make_context("extensions", "tasks", clock=SystemClock())
    async with LocalEngine(LocalConfig(), context, disk / "local") as engine:
        filler = fill(disk)
        with pytest.raises(NoAnswer):
            await engine.submit(TaskSpec("a", ("true", "x" * 5000)))
        filler.unlink()
        assert await engine.submit(TaskSpec("a", ("true", "x" * 5000))) == "a"
        async with asyncio.timeout(60):
            while (state := (await engine.states(["a"])).get("a")) is None or state.status not in ENDED:  # noqa: ASYNC110
                await asyncio.sleep(0.01)
        assert state.exit_code == 0


async def test_a_task_that_takes_too_long_fails(tmp_path: Path) -> None:
    async with running(tmp_path, local={"grace": "100ms"}) as client:
        await client.shell("a", "sleep 1000", limits={"time": "300ms"})
        task = await client.end("a")
    assert (task["status"], task["reason"]) == ("failed", "the time limit is over")


async def test_a_process_with_too_much_memory_fails(tmp_path: Path) -> None:
    program = "print('ready'); b = bytearray(400 << 20)"
    async with running(tmp_path) as client:
        command = [sys.executable, "-u", "-c", program]
        await client.post(id="a", command=command, limits={"memory": "200Mi"})
        assert (await client.end("a"))["exit_code"] == 1
        assert b"MemoryError" in await client.log("a")


async def test_cpus_are_limited(tmp_path: Path) -> None:
    async with running(tmp_path) as client:
        command = [sys.executable, "-c", "import os; print(len(os.sched_getaffinity(0)))"]
        await client.post(id="a", command=command, limits={"cpu": 1.0})
        await client.end("a")
        assert await client.log("a") == b"1\n"


async def test_a_control_group_gets_the_limits_and_the_process(tmp_path: Path) -> None:
    group = tmp_path / "group"
    group.mkdir()
    (group / "cgroup.subtree_control").write_text("cpu memory pids")
    async with running(tmp_path / "tasks", local={"cgroup": str(group)}) as client:
        await client.shell("a", "true", limits={"cpu": 1.5, "memory": "64Mi"})
        await client.end("a")
    assert (group / "task-a" / "memory.max").read_text() == str(64 << 20)
    assert (group / "task-a" / "cpu.max").read_text() == "150000 100000"
    assert (group / "task-a" / "cgroup.procs").read_text() == "0"


async def test_each_gpu_belongs_to_one_task_at_a_time(tmp_path: Path) -> None:
    go = tmp_path / "go"
    wait = f'echo "gpus $CUDA_VISIBLE_DEVICES."; while [ ! -e {go} ]; do sleep 0.02; done'
    async with running(tmp_path / "tasks", local={"gpus": ["0", "1", "2"]}) as client:
        await client.shell("a", wait, limits={"gpus": 2})
        await client.has_logged("a", b"gpus 0,1.")
        await client.shell("b", wait, limits={"gpus": 2})
        await client.shell("c", wait)
        assert (await client.get("b"))["status"] == "queued"
        assert (await client.post(id="d", command=["true"], limits={"gpus": 4})).status == 422
    async with running(tmp_path / "tasks", local={"gpus": ["0", "1", "2"]}) as client:
        assert (await client.get("b"))["status"] == "queued"
        go.touch()
        for id_ in "abc":
            assert (await client.end(id_))["status"] == "succeeded"
        assert await client.log("c") == b"gpus .\n"


async def test_a_long_output_keeps_its_end_and_says_how_much_is_deleted(tmp_path: Path) -> None:
    async with running(tmp_path, local={"max_log_size": 1 << 16}) as client:
        await client.shell("a", "i=0; while [ $i -lt 3000 ]; do echo line $i of the output of this task; "
                                "i=$((i+1)); [ $((i % 1000)) = 0 ] && sleep 0.6; done; sleep 0.6")  # fmt: skip
        await client.end("a")
        output = await client.log("a")
        assert output.startswith(b"[the first ")
        assert output.endswith(b"line 2999 of the output of this task\n")
        assert len(output) < 2 << 16
        assert await client.log("a", "?tail=2") == b"".join(
            b"line %d of the output of this task\n" % n for n in (2998, 2999)
        )
        used = (tmp_path / "local" / "a" / "output").stat()
        assert used.st_blocks * 512 < used.st_size


def test_doctor_says_how_tasks_are_limited(tmp_path: Path) -> None:
    def limits(cgroup: Path | None) -> tuple[bool | None, str]:
        config = TasksConfig.model_validate({"directory": tmp_path / "tasks", "local": {"cgroup": cgroup}})
        (finding,) = TasksExtension.examine(config)
        return finding.ok, finding.text

    assert limits(None) == (None, "CPUs by affinity, memory of each process by RLIMIT_DATA; set local::cgroup for more")
    assert limits(tmp_path)[0] is False
    assert "is no control group of version 2" in limits(tmp_path)[1]
    (tmp_path / "cgroup.subtree_control").write_text("memory")
    assert "does not control cpu; write +cpu to its cgroup.subtree_control" in limits(tmp_path)[1]
    (tmp_path / "cgroup.subtree_control").write_text("cpu memory")
    assert limits(tmp_path) == (True, f"CPU and memory of each task by {tmp_path}")
