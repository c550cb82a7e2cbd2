"""Files that grow: appended records are emitted once, also over a restart."""

import asyncio
from pathlib import Path
from typing import Any

import pytest

from otel_zernel.testing import Downstream, make_context, until
from tests.libraries.files.stored import MemoryStorage
from tests.receivers.otlp_json_file.replaying import (
    FORMATS,
    gauge,
    receiver,
    values,
    write,
)


class Following:
    """A receiver that follows. Its downstream is shared by several runs."""

    def __init__(self, folder: Path, **config: Any) -> None:
        self.downstream, self.storage = Downstream(), MemoryStorage()
        self._config = {"include": [str(folder / "*")], "follow": True, **config}

    async def __aenter__(self) -> "Following":
        context = make_context(extensions={"file_storage": self.storage})
        self._running = asyncio.create_task(receiver(context, **self._config).run(self.downstream))
        return self

    async def __aexit__(self, *_: object) -> None:
        self._running.cancel()
        with pytest.raises(asyncio.CancelledError):
            await self._running

    async def values(self, count: int) -> list[int]:
        await until(lambda: self.downstream.point_count >= count)
        return values(self.downstream.batches)


@pytest.mark.parametrize("settings", FORMATS, ids=str)
async def test_appended_records_are_emitted_and_a_restart_repeats_none(tmp_path: Path, settings: Any) -> None:
    path = tmp_path / "out"
    await write(path, gauge(1), **settings)
    following = Following(tmp_path, storage="file_storage")
    async with following:
        await following.values(1)
        await write(path, gauge(2), gauge(3), append=True, **settings)
        await following.values(3)
    await write(path, gauge(4), append=True, **settings)
    path.rename(tmp_path / "out-1")
    await write(path, gauge(5), **settings)
    async with following:
        assert sorted(await following.values(5)) == [1, 2, 3, 4, 5]


async def test_an_unfinished_line_waits_for_its_rest(tmp_path: Path) -> None:
    path = tmp_path / "out"
    await write(path, gauge(1))
    line = path.read_bytes()
    async with Following(tmp_path) as following:
        await following.values(1)
        with path.open("ab", buffering=0) as file:
            file.write(line[:20])
            await asyncio.sleep(0.02)
            file.write(line[20:])
        assert await following.values(2) == [1, 1]


async def test_start_at_end_reads_only_what_is_appended(tmp_path: Path) -> None:
    path = tmp_path / "out"
    await write(path, gauge(1))
    async with Following(tmp_path, start_at="end") as following:
        async with asyncio.timeout(60):
            while not following.downstream.point_count:  # until it has found the end of the file
                await write(path, gauge(2), append=True)
                await asyncio.sleep(0.05)
        assert set(await following.values(1)) == {2}
