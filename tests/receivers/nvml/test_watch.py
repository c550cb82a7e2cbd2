"""Scraping one GPU: schedule, timeout, unforeseen errors."""

from opentelemetry.metrics import NoOpMeter

from otel_zernel.batch import Batch
from otel_zernel.testing import Downstream, until
from otel_zernel_receivers.nvml.watching import GpuScraping
from tests.background import in_background
from tests.receivers.nvml.reading import metrics
from tests.receivers.nvml.running import Boot, Host


def scraping_of(host: Host) -> GpuScraping:
    return GpuScraping(0, host.config, host.context, NoOpMeter("test").create_counter("timeouts"))


async def test_sample_buffers_are_read_between_scrapes_before_they_are_overwritten(driver: Boot) -> None:
    two_seconds = (f"Samples 0 += {1_000_000 + number * 100_000} 100000" for number in range(1, 21))
    driver("h200").apply("gpu 0", *two_seconds)
    host, downstream = Host({"collection_interval": "60s"}), Downstream()
    with host.slot() as slot:
        scraping = scraping_of(host)
        async with in_background(scraping.run(slot, downstream, lambda: None)):
            await until(lambda: len(downstream.batches) == 2)
        scraping.close()
    reads = [
        point.count
        for metric in metrics(downstream.batches[1], "zernel.nvml.query.duration")
        for point in metric.histogram.data_points
        if "nvmlDeviceGetSamples" in str(point.attributes)
    ]
    assert reads == [59 + 9]  # the buffer of 2 s every second, and at the scrape all 9


async def test_an_unforeseen_error_costs_one_scrape_and_is_reported(driver: Boot) -> None:
    driver("h200")
    host, downstream = Host(), Downstream()
    with host.slot() as slot:
        scraping, scrape, broken = scraping_of(host), slot.scrape, [ZeroDivisionError("division by zero")]
        slot.scrape = lambda: _raised(broken.pop()) if broken else scrape()  # type: ignore[method-assign]  # a bug
        problems: list[str | None] = []
        async with in_background(scraping.run(slot, downstream, lambda: problems.append(scraping.problem))):
            await until(lambda: bool(downstream.batches))
        scraping.close()
    assert problems == ["GPU 0 cannot be scraped: ZeroDivisionError: division by zero", None]


def _raised(error: Exception) -> Batch:
    raise error


async def test_a_scrape_that_was_pending_when_the_session_ended_is_sent(driver: Boot) -> None:
    controls = driver("h200")
    host, downstream = Host({"timeout": "1ms"}), Downstream()
    with host.slot() as slot:
        scraping = scraping_of(host)
        controls.apply("gpu 0", "hang = 1")
        async with in_background(scraping.run(slot, downstream, lambda: None)):
            await until(lambda: scraping.hung)
        controls.apply("gpu 0", "hang -")
        await until(lambda: not scraping.busy)
    with host.slot() as slot:
        async with in_background(scraping.run(slot, downstream, lambda: None)):
            await until(lambda: len(downstream.batches) >= 2)
        await until(lambda: not scraping.busy)
        scraping.close()
    # The only sample came with the pending scrape.
    assert [bool(metrics(batch, "zernel.gpu.power.distribution")) for batch in downstream.batches[:2]] == [True, False]
