"""Queues over a reload: an exporter's queue outlives it, and every batch arrives once or is counted."""

import asyncio
import logging

import pytest

from otel_zernel.engine.delivery import Delivery
from otel_zernel.engine.queues import MemoryQueue, Queue, memory_share
from otel_zernel.testing import until
from tests.core.engine.recording import Disks, RecordedSink, Recording, reloading
from tests.core.engine.reloads.text import QUEUE, TEXT
from tests.core.engine.wiring import other_tasks_run
from tests.core.parts import batch_of


async def test_an_exporter_with_another_endpoint_delivers_the_queue_of_the_old_one_in_order() -> None:
    async with reloading(TEXT.replace(QUEUE, QUEUE[:-1] + ", down: true, timeout: 0}")) as running:
        Recording.feed(1, 2, 3)
        await until(lambda: running.waiting("sink") == 3)
        assert await running.reload(("down: true", "endpoint: other"))
        await running.receives(1, 2, 3)
        assert running.events() == ["leave exporters::sink", "enter exporters::sink"]


async def test_every_queue_gets_its_share_of_the_memory_when_exporters_are_added_and_removed() -> None:
    added = (("exporters: {", "exporters: {sink/c: , "), ("exporters: [sink/b]", "exporters: [sink/b, sink/c]"))
    async with reloading(TEXT) as running:
        delivery = running.service.graph.deliveries["sink"]
        assert limit_of(delivery) == memory_share(2)
        assert await running.reload(*added)
        assert limit_of(delivery) == memory_share(3)
        assert await running.reload(*((new, old) for old, new in added))
        assert limit_of(delivery) == memory_share(2)
        Recording.refusing = {"exporters::sink/c"}
        assert not await running.reload(*added)
        assert limit_of(delivery) == memory_share(2)


async def test_a_memory_limit_that_the_user_sets_is_kept() -> None:
    text = TEXT.replace("sink/b: {sending_queue: {", "sink/b: {sending_queue: {memory_limit_mib: 3, ")
    async with reloading(text) as running:
        added = (("exporters: {", "exporters: {sink/c: , "), ("exporters: [sink/b]", "exporters: [sink/b, sink/c]"))
        assert await running.reload(*added)
        assert limit_of(running.service.graph.deliveries["sink/b"]) == 3 << 20


def limit_of(delivery: Delivery) -> int | None:
    assert isinstance(delivery.queue, MemoryQueue)
    return delivery.queue.max_bytes


async def test_a_signal_whose_pipeline_a_reload_removes_leaves_its_share_to_the_others() -> None:
    metrics = "    metrics/more: {receivers: [feed], exporters: [sink]}\n"
    async with reloading(TEXT + metrics + metrics.replace("metrics", "traces")) as running:
        queue = running.service.graph.deliveries["sink"].queue
        fill(queue)
        assert queue.size == 750
        assert [*queue.take_all()]
        assert await running.reload((metrics.replace("metrics", "traces"), ""))
        fill(queue)
        assert queue.size == 1000
        assert [*queue.take_all()]


def fill(queue: Queue) -> None:
    while queue.has_room(batch_of(1.0)):
        queue.put(batch_of(1.0))


async def test_a_queue_that_shrinks_keeps_its_batches() -> None:
    async with reloading(TEXT.replace(QUEUE, QUEUE[:-1] + ", down: true, timeout: 0}")) as running:
        Recording.feed(1, 2, 3, 4)
        await until(lambda: running.waiting("sink") == 4)
        assert await running.reload(
            ("down: true", "down: false"), ("num_consumers: 1}", "num_consumers: 1, queue_size: 1}")
        )
        await running.receives(1, 2, 3, 4)


async def test_a_batch_of_an_exporter_without_a_queue_is_sent_by_its_successor() -> None:
    direct = TEXT.replace(QUEUE, "sink: {fails: 1, sending_queue: {enabled: false}}")
    async with reloading(direct) as running:
        Recording.feed(1)
        await until(lambda: running.service.graph.deliveries["sink"].exporter.attempts)  # type: ignore[attr-defined]
        assert await running.reload(("fails: 1", "endpoint: other"))
        await running.receives(1)


async def test_a_running_export_ends_before_its_exporter_is_replaced_so_nothing_arrives_twice() -> None:
    async with reloading(TEXT.replace("100ms", "20s")) as running:
        sink = running.service.graph.deliveries["sink"].exporter
        assert isinstance(sink, RecordedSink)
        sink.gate = asyncio.Event()
        Recording.feed(1, 2)
        await until(lambda: sink.attempts)
        change = asyncio.create_task(running.reload((QUEUE, QUEUE[:-1] + ", endpoint: other}")))
        await other_tasks_run()
        assert not change.done()
        Recording.feed(3)
        sink.gate.set()
        assert await change
        await running.receives(1, 2, 3)


async def test_a_removed_exporter_delivers_its_queue_first() -> None:
    async with reloading(TEXT.replace("100ms", "20s")) as running:
        sink = running.service.graph.deliveries["sink/b"].exporter
        assert isinstance(sink, RecordedSink)
        sink.gate = asyncio.Event()
        Recording.feed(1, 2, 3, receiver="feed/b")
        await until(lambda: sink.attempts)
        change = asyncio.create_task(running.reload(("exporters: [sink/b]", "exporters: [sink]")))
        await other_tasks_run()
        Recording.feed(7)
        await running.receives(7)
        sink.gate.set()
        assert await change
        assert running.received("sink/b") == [1, 2, 3]
        assert running.service.graph.deliveries.keys() == {"sink"}


async def test_batches_that_a_removed_exporter_cannot_deliver_in_time_are_counted_and_logged(
    caplog: pytest.LogCaptureFixture,
) -> None:
    dead = TEXT.replace("sink/b: {", "sink/b: {down: true, timeout: 0, ")
    async with reloading(dead) as running:
        Recording.feed(1, 2, 3, receiver="feed/b")
        await until(lambda: running.waiting("sink/b") == 3)
        with caplog.at_level(logging.ERROR, "otel_zernel"):
            assert await running.reload(("exporters: [sink/b]", "exporters: [sink]"))
        assert "Exporter sink/b was removed and could not deliver 3 items." in caplog.text
        Recording.feed(4, receiver="feed/b")
        await running.receives(4)
        running.stop.set()
        assert running.task
        assert (await running.task).lost == 3


async def test_a_batch_that_waits_for_room_in_a_removed_exporter_goes_to_its_successor() -> None:
    blocked = (
        "sink/b: {down: true, timeout: 0, sending_queue: {num_consumers: 1, queue_size: 1, block_on_overflow: true}}"
    )
    async with reloading(TEXT.replace("sink/b: {sending_queue: {num_consumers: 1}}", blocked)) as running:
        Recording.feed(1, 2, 3, receiver="feed/b")
        await until(lambda: Recording.feeds["feed/b"].empty())
        assert await running.reload(("exporters: [sink/b]", "exporters: [sink]"))
        await running.receives(3)


DURABLE = (
    TEXT.replace(QUEUE, "sink: {down: true, timeout: 0, sending_queue: {num_consumers: 1, storage: memory}}")
    .replace("extensions: {store: ,", "extensions: {memory: , store: ,")
    .replace("extensions: [store,", "extensions: [memory, store,")
)


async def test_a_durable_queue_follows_its_exporter_and_is_kept_when_its_storage_restarts() -> None:
    async with reloading(DURABLE) as running:
        Recording.feed(1, 2, 3)
        await until(lambda: running.service.graph.deliveries["sink"].queue.stored().total == 3)
        queue = running.service.graph.deliveries["sink"].queue
        assert await running.reload(("feed/b: }", "feed/b: {number: 1}}"))
        assert running.service.graph.deliveries["sink"].queue is queue, "its journal stays open"
        running.events()
        assert await running.reload(("memory: ,", "memory: {number: 1},"))
        assert running.events() == ["leave exporters::sink", "enter exporters::sink"]
        assert running.service.graph.deliveries["sink"].queue.stored().total == 3
        assert await running.reload(("down: true", "down: false"))
        await running.receives(1, 2, 3)


async def test_a_queue_in_memory_moves_to_the_disk() -> None:
    async with reloading(DURABLE.replace(", storage: memory", "")) as running:
        Recording.feed(1, 2, 3)
        await until(lambda: running.waiting() == 3)
        assert await running.reload(("num_consumers: 1}", "num_consumers: 1, storage: memory}"))
        await until(lambda: running.service.graph.deliveries["sink"].queue.stored().total == 3)
        assert await running.reload(("down: true", "down: false"))
        await running.receives(1, 2, 3)


async def test_a_batch_that_a_full_disk_did_not_take_survives_the_restart_of_its_exporter_and_arrives_once() -> None:
    async with reloading(DURABLE) as running:
        Disks.shared["exporters::sink"].full = True
        Recording.feed(1)
        await until(lambda: running.waiting("sink") == 1)
        assert await running.reload(("down: true", "down: false"))
        await running.receives(1)
        Disks.shared["exporters::sink"].full = False
        await until(lambda: running.service.graph.deliveries["sink"].queue.problem is None)
        Recording.feed(2)
        await running.receives(1, 2)
        assert running.service.graph.receivers["feed"].fan_out.accepted.total == 2


async def test_a_refused_reload_that_adds_a_storage_leaves_the_queue_in_memory_and_it_is_delivered() -> None:
    async with reloading(DURABLE.replace(", storage: memory", "")) as running:
        Recording.feed(1, 2, 3)
        await until(lambda: running.waiting("sink") == 3)
        assert not await running.reload(
            ("timeout: 0, sending_queue: {", "store: none, sending_queue: {storage: memory, ")
        )
        assert running.waiting("sink") == 3
        assert await running.reload(("down: true", "down: false"))
        await running.receives(1, 2, 3)


async def test_the_storage_of_a_removed_exporter_keeps_its_batches(caplog: pytest.LogCaptureFixture) -> None:
    async with reloading(DURABLE) as running:
        Recording.feed(1, 2, 3)
        await until(lambda: running.service.graph.deliveries["sink"].queue.stored().total == 3)
        assert await running.reload(("exporters: [sink]}", "exporters: [sink/b]}"))
        assert "Exporter sink was removed; 3 items stay in its storage." in caplog.text
        assert await running.reload(
            ("exporters: [sink/b]}\n    two", "exporters: [sink]}\n    two"), ("down: true", "down: false")
        )
        await running.receives(1, 2, 3)
