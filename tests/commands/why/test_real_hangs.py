"""The real command on real jobs of three gloo ranks that hang, or only take long: it needs root, eBPF and PyTorch."""

import json
from pathlib import Path
from typing import Any

import pytest

from otel_zernel.testing import until
from tests.commands.why.test_live import JOBS, PATIENCE, training, why

LONGEST = "60s"
"""How long to watch. A hang ends the watch."""

pytestmark = pytest.mark.timeout(300)


def soak(*values: object) -> Any:
    return pytest.param(*values, marks=pytest.mark.soak)


@pytest.mark.parametrize(
    ("kind", "role", "activity", "is_watched_before"),
    [
        ("lock", "missing", "lock", False),
        soak("lock", "missing", "lock", True),
        soak("fifo", "missing", "pipe", False),
        soak("fifo", "missing", "pipe", True),
        soak("stopped", "stopped", "unknown", False),
        soak("stopped", "stopped", "unknown", True),
        soak("order", "mismatched", "collective", False),
    ],
)
async def test_the_guilty_rank_is_named_with_its_line(
    kind: str, role: str, activity: str, is_watched_before: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    began = tmp_path / "began"
    monkeypatch.setenv("HANGS_BEGAN", str(began))
    async with training(str(JOBS / "hangs.py"), kind, "300" if is_watched_before else "5") as pid:
        if not is_watched_before:
            await until(began.exists, within=PATIENCE)
        status, output, errors = await why(str(pid), "--for", LONGEST, "--json")
    assert status == 5, errors
    [job] = json.loads(output)["jobs"]
    first, *others = job["hung"]["ranks"]
    assert (first["rank"], first["role"], first["activity"]) == (1, role, activity)
    assert first["code"][0].startswith("hangs.py:")
    assert first["code"][0].endswith(" train" if kind == "order" else " be_guilty")
    assert [(one["rank"], one["role"]) for one in others] == [(0, "waiting"), (2, "waiting")]
    assert job["hung"]["collective"]["operation"] == "all_reduce"


@pytest.mark.parametrize("kind", ["computes", soak("writes"), soak("sleeps")])
async def test_a_rank_that_only_takes_long_is_not_called_hung(
    kind: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    began = tmp_path / "began"
    monkeypatch.setenv("HANGS_BEGAN", str(began))
    async with training(str(JOBS / "hangs.py"), kind, "5") as pid:
        await until(began.exists, within=PATIENCE)
        _, output, errors = await why(str(pid), "--for", "20s", "--json")
    [job] = json.loads(output)["jobs"]
    assert job["hung"] is None, errors
