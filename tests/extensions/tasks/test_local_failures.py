"""Local tasks on disks that are full, fail or hold damaged files."""

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
    found = b"".join([piece async for piece in output_of(folder, SystemClock(), False, tail)])
    assert found == b"".join(data.splitlines(keepends=True)[-tail:] if tail else [])


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
        refused = next(one for one in refusals if one.status != 201)
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
            while (found := (await engine.states(["a"])).get("a")) is None or found.status not in ENDED:  # noqa: ASYNC110
                await asyncio.sleep(0.01)
        assert found.exit_code == 0
