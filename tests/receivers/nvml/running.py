"""The GPUs of a host without the receiver's loop: tests call each scrape."""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from otel_zernel.component import Context
from otel_zernel.testing import FakeClock, make_context
from otel_zernel_receivers.nvml.config import NvmlConfig
from otel_zernel_receivers.nvml.driver.events import XidCounts, XidListener
from otel_zernel_receivers.nvml.driver.library import NvmlLibrary
from otel_zernel_receivers.nvml.gpu_slot import GpuSlot
from otel_zernel_receivers.nvml.gpus.gpu import Gpu, GpuRegistry, count_gpus, find_gpu

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
        self._registry = GpuRegistry(self.config.device_options(), self.context, self.xids)

    @contextmanager
    def gpus(self) -> Iterator[list[Gpu]]:
        """The GPUs that the driver lists, with the driver open."""
        library = NvmlLibrary(lambda *error: self.failed.append(error))
        try:
            found = (find_gpu(library, index, HOST) for index in range(count_gpus(library)))
            yield [self._registry.create(library, one) for one in found if one]
        finally:
            library.close()

    @contextmanager
    def slot(self) -> Iterator[GpuSlot]:
        """The slot of the driver's first GPU, with the driver open."""
        library = NvmlLibrary(lambda *error: self.failed.append(error))
        listener = XidListener(library, self.xids.add)
        try:
            yield GpuSlot(library, 0, listener, self._registry, self.config.rediscover_interval)
        finally:
            listener.stop()
            assert listener.close(timeout=5)
            library.close()
