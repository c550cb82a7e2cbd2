"""A scrape that fails, hangs or is refused loses only its own points, and is counted."""

import asyncio
import threading
from collections.abc import Callable
from typing import Any, ClassVar

import pytest
from opentelemetry.metrics import NoOpMeter

from otel_zernel.batch import Batch, ItemCount
from otel_zernel.component import PartialScrape, Scraper, ScraperConfig
from otel_zernel.engine.scraping import ScrapeLoop
from otel_zernel.engine.service import Service
from otel_zernel.errors import CannotStart
from otel_zernel.telemetry import Instruments, ScraperMetrics
from otel_zernel.testing import Downstream, Dropped, make_context, until
from tests.core.engine.journals import Disk, MemoryStorage
from tests.core.engine.wiring import sink_of
from tests.core.parts import PARTS, Parts, batch_of, settings_of, values_of


class Scripted(Scraper):
    """A scraper that calls the next function of the script at each scrape."""

    script: list[Callable[[], Batch]]

    def scrape(self) -> Batch:
        return self.script.pop(0)() if self.script else Batch()


class Bench:
    """Runs a scripted scraper until a condition is true."""

    def __init__(self, script: list[Callable[[], Batch]], **config: Any) -> None:
        self.scraper = Scripted(ScraperConfig.model_validate(config), make_context())
        self.scraper.script = script
        self.downstream = Downstream()
        self.scraped: list[int] = []
        self.errored: list[int] = []

    async def run(self, until: Callable[[], bool]) -> None:
        loop = ScrapeLoop(self.scraper, ScraperMetrics(self.scraped.append, self.errored.append))
        running = asyncio.create_task(loop.run(self.downstream))
        try:
            while not until():
                assert not running.done(), running.exception()
                await asyncio.sleep(0)
        finally:
            running.cancel()
            await asyncio.gather(running, return_exceptions=True)

    @property
    def problems(self) -> dict[str, str]:
        return self.scraper.context.health.problems


def fails(error: Exception) -> Callable[[], Batch]:
    def scrape() -> Batch:
        raise error

    return scrape


async def test_each_interval_is_scraped_and_emitted() -> None:
    bench = Bench([lambda: batch_of(1.0), lambda: batch_of(2.0)], collection_interval="10s")
    await bench.run(lambda: len(bench.downstream.batches) == 2)
    assert values_of(bench.downstream.batches) == [1.0, 2.0]
    assert bench.scraped == [1, 1]
    assert bench.scraper.context.clock.monotonic() >= 11.0  # initial delay and one interval


async def test_a_failing_scrape_is_counted_and_visible_until_one_succeeds() -> None:
    bench = Bench([fails(OSError("no driver")), lambda: batch_of(1.0)])
    await bench.run(lambda: bool(bench.errored))
    assert bench.problems == {"receivers::test": "OSError: no driver"}
    await bench.run(lambda: bool(bench.downstream.batches))
    assert bench.problems == {}


async def test_a_partial_scrape_emits_its_points_and_counts_the_missing_ones() -> None:
    bench = Bench([fails(PartialScrape("GPU 3 is gone", batch_of(1.0), 7))])
    await bench.run(lambda: bool(bench.downstream.batches))
    assert (values_of(bench.downstream.batches), bench.errored, bench.scraped) == ([1.0], [7], [1])


async def test_a_failure_that_repeats_is_counted_each_time_and_logged_once_with_its_end(
    caplog: pytest.LogCaptureFixture,
) -> None:
    caplog.set_level("INFO")
    hung = PartialScrape("the filesystem at /mnt/lost does not answer", batch_of(1.0), 1)
    other = [fails(OSError("no driver")), lambda: batch_of(2.0)]
    bench = Bench([*[fails(hung)] * 5, lambda: batch_of(2.0), *other])
    await bench.run(lambda: len(bench.scraped) == 7)
    assert bench.errored == [1] * 6
    assert [record.getMessage() for record in caplog.records] == [
        "Scraping failed: the filesystem at /mnt/lost does not answer",
        "Scraping succeeds again, after 5 failures",
        "Scraping failed: OSError: no driver",
    ]


async def test_a_scrape_that_hangs_is_counted_at_each_interval_and_never_runs_twice() -> None:
    begun, released = threading.Event(), threading.Event()

    def hangs() -> Batch:
        begun.set()
        released.wait(10)
        return batch_of(1.0)

    bench = Bench([hangs, lambda: batch_of(2.0)], timeout="1ms")
    try:
        await bench.run(lambda: begun.is_set() and len(bench.errored) >= 3)
        assert bench.problems == {"receivers::test": "no answer within 0.001 s"}
        assert len(bench.scraper.script) == 1
    finally:
        released.set()


async def test_a_refused_scrape_is_emitted_again() -> None:
    bench = Bench([lambda: batch_of(1.0)])
    bench.downstream.refuse = 3
    await bench.run(lambda: bool(bench.downstream.batches))
    assert values_of(bench.downstream.batches) == [1.0]


async def test_a_scrape_that_is_refused_for_a_whole_interval_is_dropped_and_counted() -> None:
    bench = Bench([lambda: batch_of(1.0, 2.0)], collection_interval="20ms")
    bench.downstream.refuse = 1_000_000
    dropped = bench.scraper.context.drop
    assert isinstance(dropped, Dropped)
    await bench.run(lambda: bool(dropped.counts))
    assert dropped.counts == {"refused": 2}


class GatedStorage(MemoryStorage):
    """Its disks wait for the gate."""

    gate: ClassVar[asyncio.Event]

    def disk(self, component: str) -> Disk:
        disk = super().disk(component)
        disk.gate = self.gate
        return disk


async def test_a_scrape_that_waits_in_a_durable_queue_for_a_slow_disk_does_not_count_as_dropped(
    caplog: pytest.LogCaptureFixture,
) -> None:
    text = """
    receivers: {scripted: {collection_interval: 10ms, initial_delay: 1ms}}
    exporters: {sink: {sending_queue: {storage: memory}}}
    extensions: {memory: }
    service: {extensions: [memory], pipelines: {metrics: {receivers: [scripted], exporters: [sink]}}}
    """
    Scripted.script = [lambda: batch_of(1.0)] * 1000  # on a slow machine, some scrapes time out
    parts: Parts = {**PARTS, "receivers": {"scripted": Scripted}, "extensions": {"memory": GatedStorage}}
    GatedStorage.gate = asyncio.Event()
    service, stop = Service(settings_of(text, parts)), asyncio.Event()
    running = asyncio.create_task(service.run(stop))
    await until(lambda: service.undelivered().get("sink", ItemCount()).total >= 2)
    GatedStorage.gate.set()
    await until(lambda: len(sink_of(service).batches) >= 2)
    stop.set()
    await running
    assert "Dropped a scrape" not in caplog.text


async def test_a_scraper_that_cannot_start_raises_its_message() -> None:
    bench = Bench([fails(CannotStart("no such file"))])
    loop = ScrapeLoop(bench.scraper, Instruments(NoOpMeter("test")).scraper("test"))
    with pytest.raises(CannotStart, match="no such file"):
        await loop.run(bench.downstream)


async def test_a_scraper_is_closed_after_its_last_scrape_in_the_same_thread() -> None:
    calls: list[tuple[str, str]] = []

    def scrape() -> Batch:
        calls.append(("scrape", threading.current_thread().name))
        return Batch()

    bench = Bench([scrape] * 3, collection_interval="1s")
    bench.scraper.close = lambda: calls.append(("close", threading.current_thread().name))  # type: ignore[method-assign]
    await bench.run(until=lambda: len(calls) >= 2)
    await until(lambda: calls[-1][0] == "close")
    assert len({thread for _, thread in calls}) == 1
    assert [name for name, _ in calls].count("close") == 1
