"""With a storage, followed files go on where the last run ended: no row is lost, at most one block is repeated."""

import asyncio
from pathlib import Path
from typing import Any

import pytest

from otel_zernel.batch import Batch
from otel_zernel.component import Context
from otel_zernel.testing import Downstream, FakeClock, make_context, until
from tests.background import in_background
from tests.core.engine.journals import MemoryStorage, MemoryValues
from tests.receivers.csv.running import HEADER, LAYOUT, START, append, receiver, rows, values_of


class CountingClock(FakeClock):
    """Counts the waits. The receiver waits when the files have no more rows."""

    def __init__(self) -> None:
        super().__init__()
        self.waits = 0

    async def sleep(self, seconds: float) -> None:
        self.waits += 1
        await super().sleep(seconds)


class Runs:
    """Runs of the receiver, one after the other, with one storage."""

    def __init__(self, folder: Path, **options: Any) -> None:
        self.storage, self.clock = MemoryStorage(), CountingClock()
        self._config = {"files": [str(folder / "*.csv")], "layout": LAYOUT, "follow": True, "storage": "file_storage"}
        self._config |= options

    @property
    def values(self) -> MemoryValues:
        return self.storage.values["receivers::csv"]

    def context(self) -> Context:
        return make_context(id_="csv", clock=self.clock, extensions={"file_storage": self.storage})

    async def wait_for_the_next_read(self) -> None:
        """Returns when the receiver has opened all files, and has read each to its end."""
        before = self.clock.waits
        await until(lambda: self.clock.waits > before + 1)

    async def run(self, count: int, downstream: Downstream | None = None) -> list[float]:
        """Runs until `count` more rows were emitted and their positions stored. Returns the values of all rows."""
        downstream = downstream or Downstream()
        async with in_background(receiver(self.context(), **self._config).run(downstream)) as running:
            await until(lambda: downstream.point_count >= count or running.done())
            if not running.done():  # a row too many would come now
                await self.wait_for_the_next_read()
        return values_of(downstream)


async def test_a_restart_repeats_and_loses_no_row(tmp_path: Path) -> None:
    path, runs = tmp_path / "a.csv", Runs(tmp_path, batch_size=3)
    path.write_text(HEADER + rows(0, 10))
    assert await runs.run(10) == list(range(10))
    append(path, rows(10, 12) + f"{START + 12},a,x,1")
    assert await runs.run(2) == [10, 11]
    append(path, "2\n")
    assert await runs.run(1) == [12]
    assert await runs.run(0) == []


@pytest.mark.parametrize("header", [HEADER, ""], ids=["with a header", "without"])
async def test_a_truncation_after_a_restart_needs_no_header(tmp_path: Path, header: str) -> None:
    path, runs = tmp_path / "a.csv", Runs(tmp_path)
    path.write_text(HEADER + rows(0, 5))
    await runs.run(5)
    downstream = Downstream()
    running = asyncio.create_task(runs.run(1, downstream))
    await runs.wait_for_the_next_read()
    path.write_text(header + rows(5, 6))
    assert await running == [5]


async def test_row_numbers_go_on_after_a_restart(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    path, runs = tmp_path / "a.csv", Runs(tmp_path, shard={"index": 1, "count": 2})
    path.write_text(HEADER + rows(0, 3))
    assert await runs.run(1) == [1]
    append(path, rows(3, 5) + "bad\n")
    assert await runs.run(1) == [3]
    await until(lambda: caplog.messages)
    assert caplog.messages == [f"{path}:7: bad row: wrong column count: it has 1, and the header has 4"]


class Killed(Exception):
    """Ends a run at a chosen moment."""


@pytest.mark.parametrize("moment", range(6))
@pytest.mark.parametrize("accepted", [True, False], ids=["after emit", "before emit"])
async def test_a_crash_repeats_at_most_one_block_and_loses_none(tmp_path: Path, moment: int, accepted: bool) -> None:
    runs = Runs(tmp_path, batch_size=10)
    for name, first in (("a", 0), ("b", 1000)):
        (tmp_path / f"{name}.csv").write_text(HEADER + rows(first, first + 35))
    before, after = Downstream(), Downstream()

    async def emit(batch: Batch, *, transport: str = "") -> None:
        dies = len(before.batches) == moment
        if accepted or not dies:
            await before(batch)
        if dies:
            raise Killed

    with pytest.raises(Killed):
        await receiver(runs.context(), **runs._config).run(emit)
    missing = 70 - before.point_count
    await runs.run(missing + 10 * accepted, after)
    old, new = values_of(before), values_of(after)
    repeated = [value for value in new if value in old]
    assert {*old, *new} == {*range(35), *range(1000, 1035)}
    assert len(repeated) <= (10 if accepted else 0)
    assert len(new) == len(set(new))


async def test_the_position_in_a_removed_file_is_removed(tmp_path: Path) -> None:
    path, runs = tmp_path / "a.csv", Runs(tmp_path)
    path.write_text(HEADER + rows(0, 3))
    await runs.run(3)
    assert len(runs.values.stored) == 1
    async with in_background(runs.run(1)):
        await runs.wait_for_the_next_read()
        path.unlink()
        await until(lambda: not runs.values.stored)
