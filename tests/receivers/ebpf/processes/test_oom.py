"""Kills by the out-of-memory killer explain ends of processes in the same control group, once and for a short time."""

from pathlib import Path

import pytest

from otel_zernel.testing import FakeClock
from otel_zernel_receivers.ebpf.processes.oom import OomKills

GROUP = "/jobs/bert"


class Group:
    """A control group with a counter of kills."""

    def __init__(self, root: Path, file: str) -> None:
        self._file = root / file
        self._file.parent.mkdir(parents=True)
        self.count(0)

    def count(self, kills: int) -> None:
        self._file.write_text(f"low 0\noom 9\noom_kill {kills}\noom_group_kill 0\n")


@pytest.fixture(params=["jobs/bert/memory.events", "memory/jobs/bert/memory.oom_control"])
def group(request: pytest.FixtureRequest, tmp_path: Path) -> Group:
    return Group(tmp_path, request.param)


def test_a_new_kill_explains_one_end(group: Group, tmp_path: Path) -> None:
    kills = OomKills(FakeClock().monotonic, tmp_path)
    group.count(3)
    kills.follow([GROUP])
    assert not kills.explains(GROUP), "kills from before are not new"
    group.count(5)
    kills.follow([GROUP])
    assert [kills.explains(GROUP) for _ in range(3)] == [True, True, False]
    assert not kills.explains("/another")


def test_a_kill_explains_nothing_after_ten_seconds(group: Group, tmp_path: Path) -> None:
    clock = FakeClock()
    kills = OomKills(clock.monotonic, tmp_path)
    kills.follow([GROUP])
    group.count(1)
    kills.follow([GROUP])
    clock.advance(11)
    kills.follow([GROUP])
    assert not kills.explains(GROUP)


@pytest.mark.parametrize("content", ["", "oom_kill", "oom_kill x\n", "something else\n"])
def test_a_counter_of_another_form_explains_nothing(content: str, tmp_path: Path) -> None:
    (tmp_path / "jobs/bert").mkdir(parents=True)
    (tmp_path / "jobs/bert/memory.events").write_text(content)
    kills = OomKills(FakeClock().monotonic, tmp_path)
    kills.follow([GROUP, "", "/missing"])
    assert not kills.explains(GROUP)
