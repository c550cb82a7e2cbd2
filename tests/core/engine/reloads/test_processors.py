"""A processor is entered before batches arrive, and left after its last ones are out."""

import asyncio
import time
from collections.abc import Iterable

import pytest

from otel_zernel.batch import Batch
from otel_zernel.component import Emit
from otel_zernel.engine.lifetime import LONGEST_END
from otel_zernel.testing import until
from tests.core.engine.recording import Feed, Passing, Recording, reloading
from tests.core.engine.reloads.text import TEXT

OPENING = TEXT.replace("summer/b: ", "opening: {number: 1}, summer/b: ").replace(
    "[summer/a, summer/b]", "[summer/a, opening]"
)


async def test_a_processor_is_entered_before_the_receivers_run_and_left_before_the_exporters() -> None:
    async with reloading(TEXT) as running:
        Recording.events.clear()
        assert await running.reload(("summer/b: ", "opening: , summer/b: "), ("[summer/a, summer/b]", "[opening]"))
        assert running.events() == ["enter processors::opening"]
        running.stop.set()
        await running.task  # type: ignore[misc]
        left = [event for event in running.events() if event.startswith(("flush", "leave"))]
        assert left[:2] == ["flush processors::opening", "leave processors::opening"]
        assert "leave exporters::sink" in left[2:]


async def test_a_reload_flushes_a_processor_leaves_it_and_enters_the_next() -> None:
    async with reloading(OPENING) as running:
        assert await running.reload(("{number: 1}", "{number: 2}"))
        assert running.events() == [
            "flush processors::opening",
            "leave processors::opening",
            "enter processors::opening",
        ]
        Recording.feed(1)
        await running.receives(1)


async def test_a_processor_that_cannot_start_leaves_the_previous_configuration_running() -> None:
    async with reloading(TEXT) as running:
        Recording.refusing.add("processors::opening")
        assert not await running.reload(("summer/b: ", "opening: , summer/b: "), ("[summer/a, summer/b]", "[opening]"))
        Recording.feed(1)
        await running.receives(1000, 2000, 1)  # the sums that the two others flush, and the batch


async def test_a_receiver_whose_batch_a_thread_works_on_is_left_before_the_next_one_runs(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    run = Feed.run

    async def run_and_close(self: Feed, emit: Emit) -> None:
        try:
            await run(self, emit)
        finally:
            await asyncio.sleep(0.02)  # as a server that closes its connections, and then its port
            Recording.events.append(f"close {self.context.path}")

    def work(_: Passing, batch: Batch) -> Iterable[Batch]:
        time.sleep(1.3 * LONGEST_END)
        return [batch]

    monkeypatch.setattr(Feed, "run", run_and_close)
    monkeypatch.setattr(Passing, "items_at_once", 0)
    monkeypatch.setattr(Passing, "process", work)
    text = TEXT.replace("summer/b: ", "passing: , summer/b: ").replace("[summer/a, summer/b]", "[passing]")
    async with reloading(text) as running:
        await until(lambda: Recording.feeds)
        Recording.feed(1)
        await until(lambda: Recording.feeds["feed"].empty())
        assert await running.reload(("feed: ,", "feed: {number: 1},"))
        await until(lambda: "run receivers::feed" in Recording.events)
        assert Recording.events[:2] == ["close receivers::feed", "run receivers::feed"]
        await running.receives(1)
