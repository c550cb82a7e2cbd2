"""An index at which the driver lists a GPU: discovers the GPU, scrapes it, and reports it as failed once it is lost."""

import platform

from otel_zernel.batch import Batch
from otel_zernel_receivers.nvml.driver.events import XidListener
from otel_zernel_receivers.nvml.driver.library import GpuLost, GpuUnidentified, NvmlLibrary
from otel_zernel_receivers.nvml.gpus.gpu import Gpu, GpuRegistry, ListedGpu, find_gpu


class GpuSlot:
    """One index of the driver, while the driver is open. Used by one thread at a time; every method blocks."""

    def __init__(
        self,
        library: NvmlLibrary,
        index: int,
        listener: XidListener,
        registry: GpuRegistry,
        rediscover_interval: float,
    ) -> None:
        """`rediscover_interval`: seconds between checks for another GPU or other MIG instances."""
        self.index = index
        self.gpu: Gpu | None = None
        """The GPU, once it has returned its uuid."""
        self.lost: str | None = None
        """If the GPU is lost: the reason, as a sentence without its subject."""
        self.checked = False
        """Whether the slot was checked for a GPU at least once."""
        self._library = library
        self._listener = listener
        self._registry = registry
        self._rediscover_interval = rediscover_interval
        self._reports_status = "hw.status" in registry.options.metrics
        self._clock = registry.context.clock
        self._next_check = self._clock.monotonic()

    @property
    def name(self) -> str:
        """For logs and health."""
        return self.gpu.name if self.gpu else f"GPU {self.index}"

    @property
    def problem(self) -> str | None:
        """The problem of the GPU, as a sentence without its subject."""
        return self.lost or ("answers none of its queries" if self.gpu and self.gpu.board.all_failed else None)

    @property
    def drain_interval(self) -> float | None:
        """Seconds after which the sample buffers must be read again; None without buffers."""
        return self.gpu.drain_interval if self.gpu and not self.lost else None

    def scrape(self) -> Batch:
        """The current points. Checks for another GPU first, if that is due. Raises `NvmlUnavailable`.

        A GPU that is lost before its uuid is known has its status by index.
        """
        unknown = self._registry.unknown(self.index, platform.node())
        try:
            if self._clock.monotonic() >= self._next_check:
                self._check()
            if self.gpu and not self.lost:
                return Batch.join([unknown.end(), self.gpu.scrape()])
        except GpuLost as lost:
            self.lost = str(lost)
        if self.gpu:
            return Batch.join([unknown.end(), self.gpu.failed_batch()])
        return unknown.failed_batch() if self.lost and self._reports_status else unknown.end()

    def drain(self) -> Batch:
        """Reads the sample buffers, and returns an empty batch: the next scrape sends the samples.

        Raises `NvmlUnavailable`.
        """
        try:
            if self.gpu and not self.lost:
                self.gpu.drain()
        except GpuLost as lost:
            self.lost = str(lost)
        return Batch()

    def _check(self) -> None:
        """Finds a new or returned GPU, and MIG instances that were created or destroyed. Raises `GpuLost`."""
        self._next_check = self._clock.monotonic() + self._rediscover_interval
        try:
            listed = find_gpu(self._library, self.index, platform.node())
        except GpuUnidentified as problem:
            self.lost = self.lost if self.gpu else str(problem)
            return
        finally:
            self.checked = True
        if listed is None:
            self.lost = "is no longer accessible" if self.gpu else None
        elif self.gpu is None or self.lost or self.gpu.uuids != listed.uuids or _has_new_attributes(self.gpu, listed):
            self._listener.subscribe(listed.identity.uuid, listed.handle, with_mig=bool(listed.instances))
            self.gpu = self._registry.create(self._library, listed)
            self.lost = None


def _has_new_attributes(gpu: Gpu, listed: ListedGpu) -> bool:
    """Whether the board has returned an attribute that it did not return before."""
    return listed.identity.resource.items() > gpu.board.identity.resource.items()
