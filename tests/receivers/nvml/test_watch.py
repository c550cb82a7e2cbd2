"""The timetable of one GPU."""

import asyncio
from collections.abc import Callable

from opentelemetry.metrics import NoOpMeter

from otel_zernel.scraping import ScrapeThread
from otel_zernel.testing import Downstream, until
from otel_zernel_receivers.nvml.watch import Watch
from tests.receivers.nvml.driver import Driver
from tests.receivers.nvml.reading import metrics
from tests.receivers.nvml.running import Host


async def test_sample_buffers_are_read_between_scrapes_before_they_go_round(driver: Callable[[str], Driver]) -> None:
    two_seconds = (f"Samples 0 += {1_000_000 + one * 100_000} 100000" for one in range(1, 21))
    driver("h200").apply("gpu 0", *two_seconds)
    host, downstream = Host({"collection_interval": "60s"}), Downstream()
    with host.gpus() as gpus:
        thread = ScrapeThread("nvml 0")
        watch = Watch(gpus[0], thread, host.config, host.context, NoOpMeter("test").create_counter("timeouts"))
        task = asyncio.create_task(watch.run(downstream, lambda: None))
        await until(lambda: len(downstream.batches) == 2)
        task.cancel()
        await asyncio.wait([task])
        watch.close()
        thread.close()
    reads = [
        point.count
        for metric in metrics(downstream.batches[1], "zernel.nvml.query.duration")
        for point in metric.histogram.data_points
        if "nvmlDeviceGetSamples" in str(point.attributes)
    ]
    assert reads == [60 * 9]  # every second, and 9 buffers each time
