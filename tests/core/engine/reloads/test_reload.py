"""A reload exchanges the components that differ. The others go on with their queues and states, and nothing is lost."""

import asyncio
import random
from collections import Counter
from dataclasses import replace

import pytest

from otel_zernel.config.telemetry import TelemetrySettings
from otel_zernel.engine.service import Patience
from otel_zernel.testing import until
from tests.core.engine.recording import RECORDED, RecordedSink, Recording, reloading
from tests.core.engine.reloads.text import QUEUE, TEXT
from tests.core.engine.wiring import other_tasks_run
from tests.core.parts import settings_of


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


async def test_the_exporter_of_an_id_is_the_one_that_runs_now() -> None:
    async with reloading(TEXT) as running:
        service = running.service
        first, untouched = service.exporter("sink"), service.exporter("sink/b")
        assert await running.reload(("sink: {", "sink: {timeout: 4s, "))
        assert service.exporter("sink") is not first
        assert service.exporter("sink/b") is untouched
        assert await running.reload(("exporters: [sink]}", "exporters: [sink/b]}"), ("sink: {", "sink/c: {"))
        with pytest.raises(LookupError, match=r'^no exporter "sink" runs; running exporters: '):
            service.exporter("sink")


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
        await until(
            lambda: not running.service.undelivered() and all(feed.empty() for feed in Recording.feeds.values())
        )
        received = {sink: Counter(running.received(sink)) for sink in RecordedSink.received}
        assert set().union(*received.values()) == set(range(fed)), "every batch has reached an exporter"
        assert all(max(counts.values(), default=1) == 1 for counts in received.values()), "no exporter got one twice"
