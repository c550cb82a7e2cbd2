"""A component that cannot start, return or end does not stop the others: the reload rolls back, and nothing is lost."""

import asyncio
import logging

import pytest

from otel_zernel.engine.service import Patience
from otel_zernel.errors import CannotStart
from otel_zernel.testing import until
from tests.core.engine.recording import RECORDED, RecordedSink, Recording, reloading
from tests.core.engine.reloads.text import QUEUE, TEXT
from tests.core.engine.wiring import other_tasks_run
from tests.core.parts import Parts, settings_of, values_of


async def test_a_component_that_cannot_start_rolls_back_and_nothing_is_lost(caplog: pytest.LogCaptureFixture) -> None:
    async with reloading(TEXT.replace(QUEUE, QUEUE[:-1] + ", down: true, timeout: 0}")) as running:
        Recording.feed(1, 2)
        Recording.feed(7, receiver="feed/b")
        await running.receives(7, sink="sink/b")
        Recording.refusing.add("exporters::sink/new")
        kept = running.service.graph.deliveries["sink/b"].exporter
        with caplog.at_level(logging.INFO, "otel_zernel"):
            assert not await running.reload(
                ("down: true", "down: true, endpoint: other"),
                ("exporters: [sink/b]", "exporters: [sink/b, sink/new]"),
                ("sink/b: {", "sink/new: , sink/b: {"),
                ("[summer/a, summer/b]", "[summer/b]"),
                ("feed/b: }", "feed/b: {number: 1}}"),
            )
        assert (
            "Reload failed; returning to the previous configuration: exporters::sink/new: the port is taken"
            in caplog.text
        )
        assert "The previous configuration runs again." in caplog.text
        assert running.service.graph.deliveries["sink/b"].exporter is kept
        assert running.service.graph.deliveries.keys() == {"sink", "sink/b"}
        assert running.waiting("sink") == 3, "two batches, and the output of the flush"
        Recording.feed(8, receiver="feed/b")
        await running.receives(7, 8, sink="sink/b")
        Recording.refusing.clear()
        assert await running.reload(("down: true", "down: false"))
        await running.receives(1, 2, 1003)


async def test_a_receiver_that_cannot_start_after_a_reload_rolls_back(caplog: pytest.LogCaptureFixture) -> None:
    async with reloading(TEXT) as running:
        Recording.refusing.add("receivers::feed/new")
        with caplog.at_level(logging.ERROR, "otel_zernel"):
            await running.reload(("[feed/b]", "[feed/new]"), ("feed/b: }", "feed/new: , feed/b: }"))
            await until(lambda: "feed/b" in running.service.graph.receivers)
        assert "returning to the previous configuration: receivers::feed/new: the port is taken" in caplog.text
        Recording.feed(1, receiver="feed/b")
        await running.receives(1, sink="sink/b")
        assert running.task
        assert not running.task.done()


async def test_a_component_that_cannot_return_is_started_again_until_it_can(caplog: pytest.LogCaptureFixture) -> None:
    async with reloading(TEXT, Patience(retry=0.02)) as running:
        Recording.refusing.add("exporters::sink")
        assert not await running.reload((QUEUE, QUEUE[:-1] + ", endpoint: other}"))
        assert "exporters::sink" in running.service.graph.health.problems
        assert "The previous configuration cannot start completely" in caplog.text
        Recording.feed(1)
        Recording.feed(2, receiver="feed/b")
        await running.receives(2, sink="sink/b")
        Recording.refusing.clear()
        await running.receives(1)
        assert running.service.graph.health.problems == {}


async def test_a_component_that_hangs_at_its_start_or_end_does_not_block_the_reload(
    caplog: pytest.LogCaptureFixture,
) -> None:
    async with reloading(TEXT, Patience(start=0.02)) as running:
        Recording.hanging.add("enter exporters::sink/new")
        assert not await running.reload(
            ("exporters: [sink]}", "exporters: [sink/new]}"), ("sink/b: {", "sink/new: , sink/b: {")
        )
        assert "exporters::sink/new: did not start within 0.02 s" in caplog.text
        Recording.feed(1)
        await running.receives(1)


async def test_a_stop_during_a_reload_ends_the_drain_and_then_the_service() -> None:
    dead = TEXT.replace("sink/b: {", "sink/b: {down: true, timeout: 0, ").replace("100ms", "60s")
    async with reloading(dead) as running:
        Recording.feed(1, receiver="feed/b")
        await until(lambda: running.waiting("sink/b"))
        change = asyncio.create_task(running.reload(("exporters: [sink/b]", "exporters: [sink]")))
        await other_tasks_run()
        running.stop.set()
        await change
        assert running.task
        assert (await running.task).lost == 1


async def test_a_constructor_that_fails_changes_nothing() -> None:
    class Broken(RecordedSink):
        def __init__(self, config: object, context: object) -> None:
            raise CannotStart("no such device")

    async with reloading(TEXT) as running:
        parts: Parts = {**RECORDED, "exporters": {**RECORDED["exporters"], "broken": Broken}}
        text = running.text.replace("sink/b: {", "broken: , sink/b: {").replace("[sink/b]", "[sink/b, broken]")
        assert not await running.service.reload(settings_of(text, parts))
        assert running.events() == []
        Recording.feed(1)
        await running.receives(1)
        assert values_of(RecordedSink.received["sink"]) == [1]
