"""The GPUs of a host without the receiver's loop: tests call each scrape."""

from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager, contextmanager
from typing import Any

from opentelemetry.sdk.metrics import MeterProvider
from opentelemetry.sdk.metrics.export import InMemoryMetricReader

from otel_zernel.batch import Batch
from otel_zernel.clock import SystemClock
from otel_zernel.component import Context
from otel_zernel.testing import Downstream, FakeClock, make_context, until
from otel_zernel_receivers.nvml import NvmlReceiver
from otel_zernel_receivers.nvml.config import NvmlConfig
from otel_zernel_receivers.nvml.driver.events import XidCounts, XidListener
from otel_zernel_receivers.nvml.driver.library import NvmlLibrary
from otel_zernel_receivers.nvml.gpus.gpu import Gpu, GpuRegistry, count_gpus, find_gpu
from otel_zernel_receivers.nvml.watching import GpuSlot
from tests.background import in_background
from tests.otlp import metrics_in
from tests.receivers.nvml.driver import Driver
from tests.receivers.nvml.reading import values

HOST = "node-1"


class Host:
    """The GPUs of a host, and their histories over restarts of the driver."""

    def __init__(self, options: dict[str, Any] | None = None, context: Context | None = None) -> None:
        self.clock = FakeClock()
        self.context = context or make_context(id_="nvml", clock=self.clock)
        self.config = NvmlConfig.model_validate({"processes": {"proc": "/nowhere"}, **(options or {})})
        self.xids = XidCounts(self.clock.time_ns)
        self.failed: list[tuple[str, str]] = []
        """Query and error of each failed query."""
        self._registry = GpuRegistry(self.config, self.context, self.xids)

    @contextmanager
    def gpus(self) -> Iterator[list[Gpu]]:
        """The GPUs that the driver lists, with the driver open."""
        library = NvmlLibrary(lambda *error: self.failed.append(error))
        try:
            listed = (find_gpu(library, index, HOST) for index in range(count_gpus(library)))
            yield [self._registry.create(library, gpu) for gpu in listed if gpu]
        finally:
            library.close()

    @contextmanager
    def slot(self) -> Iterator[GpuSlot]:
        """The slot of the driver's first GPU, with the driver open."""
        library = NvmlLibrary(lambda *error: self.failed.append(error))
        listener = XidListener(library, self.xids.add)
        try:
            yield GpuSlot(library, 0, listener, self._registry)
        finally:
            listener.stop()
            assert listener.close(timeout=5)
            library.close()


Boot = Callable[[str], Driver]
QUICK = {
    "collection_interval": "50ms",
    "initial_delay": 0,
    "timeout": "300ms",
    "rediscover_interval": "20ms",
    "metrics": {"zernel.nvml.query.duration": {"enabled": False}, "zernel.gpu.xid.last": {"enabled": True}},
}


class Running:
    """A running receiver and its batches, metrics and health."""

    def __init__(self, options: dict[str, Any]) -> None:
        self.reader = InMemoryMetricReader()
        meter = MeterProvider([self.reader]).get_meter("test")
        self.context = make_context(id_="nvml", clock=SystemClock(), meter=meter)
        self.downstream = Downstream()
        self.receiver = NvmlReceiver(NvmlConfig.model_validate({**QUICK, **options}), self.context)

    @property
    def batches(self) -> list[Batch]:
        return self.downstream.batches

    @property
    def timeouts(self) -> dict[str, int]:
        """The number of timeouts of each GPU, by uuid. Those of the driver itself have none."""
        return {str(attributes.get("hw.id", "")): count for attributes, count in self._counted("zernel.nvml.timeouts")}

    @property
    def errors(self) -> dict[tuple[str, str], int]:
        """The number of failures, by query and error."""
        counted = self._counted("zernel.nvml.query.errors")
        return {(str(key["zernel.nvml.query"]), str(key["error.type"])): count for key, count in counted}

    def _counted(self, name: str) -> Iterator[tuple[dict[str, Any], int]]:
        if not (data := self.reader.get_metrics_data()):
            return
        for point in (point for metric in metrics_in(data) if metric.name == name for point in metric.data.data_points):
            yield dict(point.attributes or {}), int(point.value)

    @property
    def problem(self) -> str:
        return self.context.health.problems.get("receivers::nvml", "")

    async def scraped(self, uuid: str) -> None:
        """Waits for the next scrape of the GPU."""
        before = len(self.batches)
        await until(lambda: any(mentions(uuid, batch) for batch in self.batches[before:]))

    def newest(self, metric: str, uuid: str = "") -> dict[str, float]:
        """The newest values of the metric, for one GPU or for any."""
        found = (values(batch, metric) for batch in reversed(self.batches) if mentions(uuid, batch))
        return next((one for one in found if one), {})


def mentions(text: str, batch: Batch) -> bool:
    """Whether the batch contains the text: a GPU's uuid, or a driver's version."""
    return text.encode() in batch.bytes_of("metrics")


@asynccontextmanager
async def running(**options: Any) -> AsyncIterator[Running]:
    nvml = Running(options)
    async with in_background(nvml.receiver.run(nvml.downstream)):
        yield nvml


def gpu(index: int) -> str:
    """The uuid of a board in the scenario `h100x8`."""
    return f"GPU-5fd4f087-86f3-7a43-b711-00000000000{index}"


@asynccontextmanager
async def scraping(driver: Boot, scenario: str, *uuids: str) -> AsyncIterator[tuple[Driver, Running]]:
    """The driver of this scenario, and a receiver that has scraped these GPUs."""
    controls = driver(scenario)
    async with running() as nvml:
        for uuid in uuids:
            await nvml.scraped(uuid)
        yield controls, nvml


@asynccontextmanager
async def gpu_5_hanging(driver: Boot, *others: int) -> AsyncIterator[tuple[Driver, Running]]:
    """A receiver that has scraped GPU 5, so that its uuid is known, and these others, before GPU 5 hung."""
    async with scraping(driver, "h100x8", *map(gpu, (*others, 5))) as (controls, nvml):
        controls.apply("gpu 5", "hang = 1")
        await until(lambda: f"GPU 5 ({gpu(5)}) does not answer" in nvml.problem)
        yield controls, nvml
