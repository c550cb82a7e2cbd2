"""The real command on real jobs on gloo that hang, or only take long: it needs root, eBPF and PyTorch."""

import asyncio
import json
import signal
import subprocess
import sys
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from otel_zernel.testing import until
from tests.commands.why.test_live import JOBS, PATIENCE, TORCHRUN, WHY, ending, family, training, why

LONGEST = "60s"
"""How long to watch. A hang ends the watch."""

pytestmark = pytest.mark.timeout(300)


def soak(*values: object) -> Any:
    return pytest.param(*values, marks=pytest.mark.soak)


@dataclass(frozen=True)
class Hang:
    """What the guilty rank of a job is, by the kind of its hang."""

    role: str
    activity: str | None
    line: str
    """Its function."""
    detail: str = ""
    """A part of it."""
    operation: str | None = "all_reduce"
    """Which the others wait in."""
    rank: int = 1


HANGS = {
    "lock": Hang("missing", "lock", "do_lock"),
    "fifo": Hang("missing", "pipe", "do_fifo", "which no other process has opened"),
    "stopped": Hang("stopped", "unknown", "do_stopped", "stopped by a signal"),
    "gil": Hang("missing", "timer", "do_gil", "holds the GIL"),
    "dead": Hang("dead", None, "train", "killed by SIGKILL", None),
    "order": Hang("mismatched", "collective", "train", "barrier"),
    "count": Hang("mismatched", "collective", "do_count", "barrier"),
    "size": Hang("mismatched", "collective", "train", "the sizes of their tensors differ"),
    "worker": Hang("missing", "lock", "Locked.__getitem__", "its DataLoader worker"),
    "loader": Hang("dead", None, "train", "ended with exit code 1", None),
    "paused": Hang("missing", "pipe", "do_paused", "is stopped"),
    "pool": Hang("missing", "lock", "do_pool", "a pool whose processes have no work"),
    "producer": Hang("missing", "pipe", "do_producer", "is dead: killed by SIGKILL"),
    "checkpoint": Hang("missing", "pipe", "save", "which no other process has opened", rank=0),
    "preprocess": Hang("missing", "socket", "do_preprocess", "reads from a socket of 127.0.0.1", "barrier"),
    "logger": Hang("missing", "socket", "do_preprocess", "reads from a socket of 127.0.0.1", rank=0),
    "store": Hang("waiting", "collective", "new_group", "a socket of 127.0.0.1", "new_group", rank=0),
}
SLOW = ("computes", "writes", "sleeps", "asks", "evaluates", "saves", "compiles", "debugs", "learns", "idles")
"""What a rank may do for long that does not hang."""
BEFORE, AFTER = True, False
"""Whether the collector has watched the job before it hangs."""
FEW_STEPS, MANY_STEPS = "5", "400"


async def hang_of(kind: str, folder: Path, patch: pytest.MonkeyPatch, *, is_watched_before: bool) -> dict[str, Any]:
    """What the command says about a job that hangs."""
    began = folder / "began"
    patch.setenv("HANGS_BEGAN", str(began))
    async with training(str(JOBS / "hangs.py"), kind, MANY_STEPS if is_watched_before else FEW_STEPS) as pid:
        if not is_watched_before:
            await until(began.exists, within=PATIENCE)
        begin = time.time()
        status, output, errors = await why(str(pid), "--for", LONGEST, "--json")
        hung_for = time.time() - max(began.stat().st_mtime if began.exists() else begin, begin)
    begun = "hang" if is_watched_before else "watch"
    sys.stdout.write(f"{kind}: named {hung_for:.0f} s after the begin of the {begun}\n")
    assert status == 5, errors
    [job] = json.loads(output)["jobs"]
    hung: dict[str, Any] = job["hung"]
    return hung


@pytest.mark.parametrize(
    ("kind", "is_watched_before"),
    [
        ("gil", AFTER),
        ("preprocess", AFTER),
        *(soak(kind, AFTER) for kind in HANGS if kind not in ("gil", "preprocess", "dead", "loader")),
        *(soak(kind, BEFORE) for kind in HANGS),
    ],
)
async def test_the_guilty_rank_is_named_with_its_line(
    kind: str, is_watched_before: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    hung, hang = await hang_of(kind, tmp_path, monkeypatch, is_watched_before=is_watched_before), HANGS[kind]
    first, *others = hung["ranks"]
    assert (first["rank"], first["role"], first["activity"]) == (hang.rank, hang.role, hang.activity)
    lines = first["code"] if hang.role == "dead" else first["code"][:1]
    assert any(line.endswith(f" {hang.line}") for line in lines)
    assert hang.detail in first["detail"]
    assert {one["role"] for one in others} == {"waiting"}
    assert (hung["collective"] or {"operation": None})["operation"] == hang.operation


@pytest.mark.soak
@pytest.mark.parametrize("kind", ["lock", "order"])
async def test_the_guilty_rank_of_ranks_that_multiprocessing_has_started_is_named(
    kind: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HANGS_SPAWN", "1")
    hung, hang = await hang_of(kind, tmp_path, monkeypatch, is_watched_before=True), HANGS[kind]
    assert [(one["rank"], one["role"]) for one in hung["ranks"][:2]] == [(hang.rank, hang.role), (0, "waiting")]


@pytest.mark.soak
async def test_a_rank_that_was_dead_before_the_watch_is_missing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    hung = await hang_of("dead", tmp_path, monkeypatch, is_watched_before=False)
    assert [(one["rank"], one["role"]) for one in hung["ranks"]] == [(1, "missing"), (0, "waiting")]
    assert hung["ranks"][0]["detail"] == "no process with this rank is seen"


@pytest.mark.soak
async def test_a_job_that_its_user_has_stopped_is_called_stopped_at_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    began = tmp_path / "began"
    monkeypatch.setenv("HANGS_BEGAN", str(began))
    async with training(str(JOBS / "hangs.py"), "trains", FEW_STEPS) as pid:
        await until(began.exists, within=PATIENCE)
        for process in family(pid):
            process.send_signal(signal.SIGSTOP)
        status, output, errors = await why(str(pid), "--for", LONGEST, "--json")
    [job] = json.loads(output)["jobs"]
    assert job["verdict"] == "stopped", errors
    assert (status, job["hung"]) == (0, None)
    assert [one["role"] for one in job["stopped"]["ranks"]] == ["stopped", "stopped"]
    assert "kill -CONT" in job["why"]


@pytest.mark.soak
async def test_an_elastic_restart_is_no_hang(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A rank fails, the others with it, and torchrun starts all of them again."""
    began = tmp_path / "began"
    monkeypatch.setenv("HANGS_BEGAN", str(began))
    launcher = [*TORCHRUN, "--nproc-per-node", "2", "--max-restarts", "2"]
    async with training(*launcher, str(JOBS / "hangs.py"), "restarts", MANY_STEPS) as pid:
        _, output, errors = await why(str(pid), "--for", "45s", "--json")
        assert began.exists()
    [job] = json.loads(output)["jobs"]
    assert job["hung"] is None, errors
    assert job["step"]["count"] > int(MANY_STEPS)


@pytest.mark.parametrize(("kind", "seconds"), [("computes", 8), *(soak(kind, 25) for kind in SLOW)])
async def test_a_rank_that_only_takes_long_is_not_called_hung(
    kind: str, seconds: float, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A rank that is blocked in place of that hangs after 5 s without a mark."""
    began = tmp_path / "began"
    monkeypatch.setenv("HANGS_BEGAN", str(began))
    async with training(str(JOBS / "hangs.py"), kind, FEW_STEPS) as pid:
        await until(began.exists, within=PATIENCE)
        command = await asyncio.create_subprocess_exec(
            *WHY, str(pid), "--for", LONGEST, "--json", stdout=subprocess.PIPE, stderr=subprocess.PIPE
        )
        async with ending(command):
            assert command.stderr
            async for line in command.stderr:
                if line.startswith(b"Watching for "):
                    break
            await asyncio.sleep(seconds)
            command.send_signal(signal.SIGINT)  # it waits for steps for 15 s before it counts the time of `--for`
            output, errors = await command.communicate()
    [job] = json.loads(output)["jobs"]
    assert job["hung"] is None, errors
