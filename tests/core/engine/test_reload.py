"""A reload exchanges the components that differ. The others go on with their queues and states, and nothing is lost."""

import asyncio
import logging
import random
from collections import Counter
from dataclasses import replace

import pytest

from otel_zernel.config.telemetry import TelemetrySettings
from otel_zernel.engine.delivery import Delivery
from otel_zernel.engine.queues import MemoryQueue, memory_share
from otel_zernel.engine.service import Patience
from otel_zernel.errors import CannotStart
from otel_zernel.testing import until
from tests.core.engine.recording import RECORDED, Disks, RecordedSink, Recording, reloading
from tests.core.engine.wiring import other_tasks_run
from tests.core.parts import Parts, settings_of, values_of

TEXT = """
receivers: {feed: , feed/b: }
processors: {summer/a: , summer/b: , doubler: }
exporters: {sink: {sending_queue: {num_consumers: 1}}, sink/b: {sending_queue: {num_consumers: 1}}}
extensions: {store: , store/other: }
service:
  extensions: [store, store/other]
  shutdown_timeout: 100ms
  pipelines:
    one: {receivers: [feed], processors: [summer/a, summer/b], exporters: [sink]}
    two: {receivers: [feed/b], exporters: [sink/b]}
"""
QUEUE = "sink: {sending_queue: {num_consumers: 1}}"


async def test_an_unchanged_configuration_touches_no_component() -> None:
    async with reloading(TEXT) as running:
        before = dict(running.service.graph.stages)
        up_since = running.service.graph.health.up_since
        assert await running.reload()
        Recording.feed(1)
        await running.receives(1)
        assert running.events() == []
        assert running.service.graph.stages == before
        assert running.service.graph.health.up_since == up_since


async def test_only_the_changed_component_restarts() -> None:
    async with reloading(TEXT) as running:
        assert await running.reload(("feed/b: }", "feed/b: {number: 1}}"))
        await until(lambda: Recording.events)
        assert running.events() == ["run receivers::feed/b"]


async def test_a_kept_receiver_emits_into_its_new_pipelines() -> None:
    async with reloading(TEXT) as running:
        Recording.feed(1)
        await running.receives(1)
        assert await running.reload(("exporters: [sink]}", "exporters: [sink/b]}"))
        Recording.feed(2)
        await running.receives(2, sink="sink/b")
        assert [event for event in running.events() if "receivers" in event] == []


async def test_a_processor_keeps_its_state_when_its_neighbour_is_removed_and_that_one_is_flushed() -> None:
    async with reloading(TEXT) as running:
        Recording.feed(1, 2)
        await running.receives(1, 2)
        assert await running.reload(("[summer/a, summer/b]", "[doubler, summer/b]"))
        await running.receives(1, 2, 1003)
        Recording.feed(5)
        await running.receives(1, 2, 1003, 10)
        running.stop.set()
        await running.task  # type: ignore[misc]
        assert running.received()[-1] == 1000 + 1 + 2 + 1003 + 10, "summer/b has seen everything"


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


async def test_an_exporter_restarts_with_the_extension_that_it_uses() -> None:
    async with reloading(TEXT.replace("sink/b: {", "sink/b: {store: store/other, ")) as running:
        assert await running.reload(("store/other: }", "store/other: {number: 1}}"))
        assert running.events() == [
            "leave exporters::sink/b",
            "leave extensions::store/other",
            "enter extensions::store/other",
            "enter exporters::sink/b",
        ]
        Recording.feed(1, receiver="feed/b")
        await running.receives(1, sink="sink/b")


async def test_everything_that_stops_has_stopped_before_anything_starts_so_that_ports_are_free() -> None:
    async with reloading(TEXT) as running:
        assert await running.reload(
            ("exporters: [sink]", "exporters: [sink/new]"),
            ("sink/b: {", "sink/new: , sink/b: {endpoint: other, "),
            ("[store, store/other]", "[store/other]"),
        )
        events = running.events()
        assert sorted(events[:3]) == ["leave exporters::sink", "leave exporters::sink/b", "leave extensions::store"]
        assert events[3:] == ["enter exporters::sink/new", "enter exporters::sink/b"]


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
        assert not running.task or not running.task.done()


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


async def test_the_problem_of_a_removed_component_vanishes() -> None:
    async with reloading(TEXT) as running:
        running.service.graph.receivers["feed/b"].context.report("broken")
        assert running.service.graph.health.problems
        assert await running.reload(("[feed/b]", "[feed]"))
        assert running.service.graph.health.problems == {}


async def test_a_receiver_that_has_read_its_input_does_not_read_it_again() -> None:
    finite = TEXT.replace("feed: ,", "source: ,").replace("[feed]", "[source]")
    async with reloading(finite) as running:
        await running.receives(1, 2, 3)
        assert await running.reload(("feed/b: }", "feed/b: {number: 1}}"))
        assert await running.reload(("exporters: [sink]}", "exporters: [sink, sink/b]}"))
        await other_tasks_run()
        assert running.received() == [1, 2, 3]


async def test_reloads_in_quick_succession_do_not_starve_ticks() -> None:
    ticking = TEXT.replace("doubler: }", "ticking: }").replace("[summer/a, summer/b]", "[ticking]")
    async with reloading(ticking) as running:
        number = 0
        while len(running.received()) < 3:
            number += 1
            assert await running.reload((running.text, ticking.replace("feed/b: }", f"feed/b: {{number: {number}}}}}")))
            await asyncio.sleep(0.01)
        assert set(running.received()) == {1.0}


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


DURABLE = (
    TEXT.replace(QUEUE, "sink: {down: true, timeout: 0, sending_queue: {num_consumers: 1, storage: memory}}")
    .replace("extensions: {store: ,", "extensions: {memory: , store: ,")
    .replace("extensions: [store,", "extensions: [memory, store,")
)


async def test_a_durable_queue_follows_its_exporter_and_is_kept_when_its_storage_restarts() -> None:
    async with reloading(DURABLE) as running:
        Recording.feed(1, 2, 3)
        await until(lambda: running.service.graph.deliveries["sink"].stored().total == 3)
        queue = running.service.graph.deliveries["sink"].queue
        assert await running.reload(("feed/b: }", "feed/b: {number: 1}}"))
        assert running.service.graph.deliveries["sink"].queue is queue, "its journal stays open"
        running.events()
        assert await running.reload(("memory: ,", "memory: {number: 1},"))
        assert running.events() == ["leave exporters::sink", "enter exporters::sink"]
        assert running.service.graph.deliveries["sink"].stored().total == 3
        assert await running.reload(("down: true", "down: false"))
        await running.receives(1, 2, 3)


async def test_a_queue_in_memory_moves_to_the_disk() -> None:
    async with reloading(DURABLE.replace(", storage: memory", "")) as running:
        Recording.feed(1, 2, 3)
        await until(lambda: running.waiting() == 3)
        assert await running.reload(("num_consumers: 1}", "num_consumers: 1, storage: memory}"))
        await until(lambda: running.service.graph.deliveries["sink"].stored().total == 3)
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
        await until(lambda: running.service.graph.deliveries["sink"].stored().total == 3)
        assert await running.reload(("exporters: [sink]}", "exporters: [sink/b]}"))
        assert "Exporter sink was removed; 3 items stay in its storage." in caplog.text
        assert await running.reload(
            ("exporters: [sink/b]}\n    two", "exporters: [sink]}\n    two"), ("down: true", "down: false")
        )
        await running.receives(1, 2, 3)


async def test_many_reloads_leave_no_task_behind() -> None:
    async with reloading(TEXT) as running:
        counts = []
        for number in range(60):
            text = TEXT.replace(QUEUE, f"sink: {{endpoint: e{number}}}").replace(
                "[summer/a, summer/b]", ["[summer/a]", "[doubler, summer/b]"][number % 2]
            )
            assert await running.reload((running.text, text))
            await asyncio.sleep(0)
            counts.append(len(asyncio.all_tasks()))
        assert max(counts[40:]) <= max(counts[:10])


async def test_a_restarted_component_finds_the_values_that_its_former_instance_kept() -> None:
    async with reloading(TEXT) as running:
        for number in range(2, 4):
            assert await running.reload((running.text, TEXT.replace(QUEUE, f"sink: {{endpoint: e{number}}}")))
            exporter = running.service.graph.deliveries["sink"].exporter
            assert isinstance(exporter, RecordedSink)
            assert exporter.instances == number


async def test_own_metrics_that_are_switched_on_restart_everything_and_keep_the_queues() -> None:
    async with reloading(TEXT.replace(QUEUE, QUEUE[:-1] + ", down: true, timeout: 0}")) as running:
        Recording.feed(1, 2, 3)
        await until(lambda: running.waiting() == 3)
        settings = settings_of(running.text.replace("down: true", "down: false"), RECORDED)
        reader = {"pull": {"exporter": {"prometheus": {"host": "127.0.0.1", "port": 0}}}}
        measured = replace(settings, telemetry=TelemetrySettings.model_validate({"metrics": {"readers": [reader]}}))
        assert await running.service.reload(measured)
        await until(lambda: running.received()[:3] == [1, 2, 3])
        assert {"enter exporters::sink/b", "run receivers::feed", "enter extensions::store"} <= {*running.events()}


def any_configuration(chance: random.Random) -> str:
    """Two receivers that never change, into two pipelines with separate exporters; all else differs at random."""
    exporters = chance.sample(range(4), 4)
    split = chance.randint(1, 3)
    sinks = [f"sink/{one}: {{endpoint: e{chance.randint(0, 1)}}}" for one in range(4)]
    stores = f"store: {{number: {chance.randint(0, 1)}}}"
    processors = [chance.sample(["passing/a", "passing/b"], chance.randint(0, 2)) for _ in range(2)]
    one, two = (", ".join(f"sink/{number}" for number in part) for part in (exporters[:split], exporters[split:]))
    return f"""
receivers: {{feed: , feed/b: }}
processors: {{passing/a: {{number: {chance.randint(0, 1)}}}, passing/b: }}
exporters: {{{", ".join(sinks)}}}
extensions: {{{stores}}}
service:
  extensions: [store]
  pipelines:
    one: {{receivers: [feed], processors: [{", ".join(processors[0])}], exporters: [{one}]}}
    two: {{receivers: [feed/b], processors: [{", ".join(processors[1])}], exporters: [{two}]}}
"""


@pytest.mark.parametrize("seed", range(8))
async def test_random_reloads_some_of_them_failing_lose_and_repeat_nothing(seed: int) -> None:
    chance = random.Random(seed)  # no secret
    async with reloading(any_configuration(chance), Patience(retry=0.02)) as running:
        fed = 0
        for _ in range(15):
            for _ in range(chance.randint(0, 30)):
                Recording.feed(fed, receiver=chance.choice(["feed", "feed/b"]))
                fed += 1
            Recording.refusing.clear()
            if chance.random() < 0.3:
                Recording.refusing.add(f"exporters::sink/{chance.randint(0, 3)}")
            text = any_configuration(chance)
            change = asyncio.create_task(running.reload((running.text, text)))
            while not change.done():
                Recording.feed(fed, receiver=chance.choice(["feed", "feed/b"]))
                fed += 1
                await asyncio.sleep(0)
            await change
        Recording.refusing.clear()
        await until(lambda: not running.service.undelivered() and all(one.empty() for one in Recording.feeds.values()))
        received = {sink: Counter(running.received(sink)) for sink in RecordedSink.received}
        assert set().union(*received.values()) == set(range(fed)), "every batch has reached an exporter"
        assert all(max(counts.values(), default=1) == 1 for counts in received.values()), "no exporter got one twice"
