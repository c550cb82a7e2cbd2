"""Failures of the engine for some tasks hinder no others, and do not flood the log."""

import logging
from pathlib import Path

import pytest

from otel_zernel.errors import NoAnswer
from otel_zernel_extensions.tasks.engines.engine import Observed, TaskSpec
from tests.extensions.tasks.world import Collector, MemoryEngine


class StubbornEngine(MemoryEngine):
    """Cannot delete or free the tasks in `kept`."""

    def __init__(self) -> None:
        super().__init__()
        self.kept: set[str] = set()
        self.released: list[str] = []

    async def release(self, handle: str) -> None:
        self.released.append(handle)
        self._refuse(handle)

    async def forget(self, handle: str) -> None:
        self._refuse(handle)
        await super().forget(handle)

    def _refuse(self, handle: str) -> None:
        if handle.removeprefix("handle of ") in self.kept:
            raise NoAnswer("the control group is busy")


async def ended(collector: Collector, ids: list[str]) -> None:
    """Runs these tasks to their ends."""
    for id_ in ids:
        await collector.act(collector.supervisor.add(TaskSpec(id_, ("true",))))
    for _ in ids:
        await collector.step()
        for id_ in collector.engine.runs:
            collector.engine.world[f"handle of {id_}"] = Observed("succeeded", 0)
    await collector.step()


async def test_tasks_that_cannot_be_deleted_do_not_keep_the_others_and_are_tried_again(tmp_path: Path) -> None:
    engine = StubbornEngine()
    collector = Collector(tmp_path, engine, retention="24h", max_running=50)
    await collector.start()
    old = [f"old{number}" for number in range(30)]
    new = [f"new{number}" for number in range(5)]
    await ended(collector, old)
    collector.clock.advance(1)
    await ended(collector, new)
    engine.kept = {*old}
    collector.clock.advance(2 * 86400)
    for _ in range(4):
        await collector.step()
    assert engine.forgotten == {f"handle of {id_}" for id_ in new}
    assert await collector.get("new0") is None
    assert await collector.get("old0")
    engine.kept.clear()
    for _ in range(3):
        await collector.step()
    assert await collector.get("old0"), "the deletion is tried again too early"
    collector.clock.advance(61)
    for _ in range(3):
        await collector.step()
    assert [await collector.get(id_) for id_ in old] == [None] * 30
    await collector.supervisor.close()


async def test_one_line_stands_for_the_same_failure_of_many_tasks(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    engine = StubbornEngine()
    collector = Collector(tmp_path, engine, max_running=10)
    await collector.start()
    ids = [f"t{number}" for number in range(10)]
    engine.kept = {*ids}
    with caplog.at_level(logging.WARNING):
        await ended(collector, ids)
        for _ in range(5):
            await collector.step()
        assert len(caplog.messages) == 1
        collector.clock.advance(61)
        await collector.step()
    assert len(caplog.messages) == 2
    assert "waits: the control group is busy; trying again (" in caplog.messages[1]
    assert "times since the last line)" in caplog.messages[1]
    await collector.supervisor.close()


async def test_an_ended_task_is_released_once_its_end_is_stored_and_again_if_the_collector_died(tmp_path: Path) -> None:
    engine = StubbornEngine()
    collector = Collector(tmp_path, engine)
    await collector.start()
    await collector.act(collector.supervisor.add(TaskSpec("a", ("true",))))
    await collector.step()
    assert engine.released == []
    engine.world["handle of a"] = Observed("failed", 1)
    engine.kept = {"a"}
    await collector.step()
    assert (await collector.get("a") or TaskSpec("", ())).status == "failed"  # type: ignore[union-attr]
    assert engine.released == ["handle of a"]
    await collector.step()
    assert engine.released == ["handle of a"] * 2
    await collector.kill()
    await collector.start()
    engine.kept.clear()
    for _ in range(3):
        await collector.step()
    assert engine.released == ["handle of a"] * 3
    await collector.supervisor.close()
