"""The limits of local tasks: time, memory, CPUs, GPUs, output."""

import sys
from pathlib import Path

import pytest

from otel_zernel_extensions.tasks import TasksExtension
from otel_zernel_extensions.tasks.config import TasksConfig
from tests.extensions.tasks.running import running

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="tasks need Linux")


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
