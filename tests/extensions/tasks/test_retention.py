"""Ended tasks are kept for `retention`, whatever the clock of the engine says."""

from pathlib import Path

import pytest

from otel_zernel_extensions.tasks.engines.engine import Observed, TaskSpec
from tests.extensions.tasks.world import Collector, MemoryEngine

SPEC = TaskSpec("a", ("true",))
DAY = 86400.0


@pytest.mark.parametrize("ended", [100.0, 1e12, None])
async def test_a_task_is_kept_for_the_retention_from_when_its_end_was_stored(
    tmp_path: Path, ended: float | None
) -> None:
    engine = MemoryEngine()
    collector = Collector(tmp_path, engine, retention="24h")
    await collector.start()
    await collector.act(collector.supervisor.add(SPEC))
    await collector.step()
    engine.world["handle of a"] = Observed("succeeded", 0, started=ended, ended=ended)
    await collector.step()
    await collector.step()
    kept = await collector.get("a")
    assert kept
    assert kept.status == "succeeded"
    assert ended is None or kept.ended == ended
    collector.clock.advance(0.9 * DAY)
    await collector.step()
    assert await collector.get("a")
    collector.clock.advance(0.2 * DAY)
    await collector.step()
    assert await collector.get("a") is None
    assert engine.forgotten == {"handle of a"}
    await collector.supervisor.close()
