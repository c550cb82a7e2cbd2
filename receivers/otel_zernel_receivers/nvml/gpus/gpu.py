"""A GPU: a board and its MIG instances, which share a thread; how GPUs are found, and those that were lost before."""

from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass, field

from otel_zernel.batch import Batch
from otel_zernel.clock import Clock
from otel_zernel.component import Context
from otel_zernel.otlp.points import AttributeValue
from otel_zernel_libraries.training import semconv
from otel_zernel_receivers.nvml.config import NvmlConfig
from otel_zernel_receivers.nvml.driver.events import XidCounts
from otel_zernel_receivers.nvml.driver.kernel_log import BusId, LoggedXid, bus_id
from otel_zernel_receivers.nvml.driver.library import GpuLost, GpuUnidentified, Handle, NvmlLibrary
from otel_zernel_receivers.nvml.gpus.device import Device
from otel_zernel_receivers.nvml.gpus.history import DeviceHistory
from otel_zernel_receivers.nvml.gpus.identity import OF_POINTS, GpuIdentity, board_identity, instance_identity
from otel_zernel_receivers.nvml.points.encoding import Encoder
from otel_zernel_receivers.nvml.readings.status import status_points


class UnknownGpu:
    """Reports `hw.status` of an index until its GPU is known. Used by one thread at a time."""

    def __init__(self, index: int, hostname: str, clock: Clock) -> None:
        resource: dict[str, AttributeValue] = {
            "host.name": hostname,
            "hw.type": "gpu",
            "hw.vendor": "NVIDIA",
            "hw.id": str(index),  # unique on its host only
            "hw.name": f"GPU {index}",
            semconv.GPU_INDEX: index,
        }
        self._encoder = Encoder(resource, {name: resource[name] for name in OF_POINTS if name in resource})
        self._clock = clock
        self._is_reported = False

    def failed_batch(self) -> Batch:
        """The status `failed`."""
        self._is_reported = True
        return self._encoder.numbers(status_points("failed"), self._clock.time_ns())

    def end(self) -> Batch:
        """The end of its series, once: its GPU is known, or does not belong to this container."""
        if not self._is_reported:
            return Batch()
        self._is_reported = False
        return self._encoder.ends(status_points("failed"), self._clock.time_ns())


@dataclass(frozen=True, slots=True)
class Gpu:
    """A board and its MIG instances. Used by one thread at a time."""

    board: Device
    instances: list[Device]

    @property
    def name(self) -> str:
        """For logs and health."""
        return f"GPU {self.board.identity.index} ({self.board.identity.uuid})"

    @property
    def uuids(self) -> list[str]:
        """The uuids of the board and of its MIG instances."""
        return [device.identity.uuid for device in (self.board, *self.instances)]

    def scrape(self) -> Batch:
        """The current points. Raises `NvmlUnavailable` or `GpuLost`."""
        return Batch.join([device.scrape() for device in (self.board, *self.instances)])


@dataclass(frozen=True, slots=True)
class ListedGpu:
    """A GPU that the driver lists."""

    handle: Handle
    identity: GpuIdentity
    instances: list[tuple[Handle, GpuIdentity]]

    @property
    def uuids(self) -> list[str]:
        """The uuids of the board and of its MIG instances."""
        return [self.identity.uuid, *(identity.uuid for _, identity in self.instances)]


def count_gpus(library: NvmlLibrary) -> int:
    """The number of GPUs that the driver lists; 0 if it does not answer. Raises `NvmlUnavailable`."""
    try:
        return int(library.nvml.nvmlDeviceGetCount())
    except library.nvml.NVMLError as error:
        with suppress(GpuLost):
            library.record_error("nvmlDeviceGetCount", error.value)
        return 0


def find_gpu(library: NvmlLibrary, index: int, hostname: str) -> ListedGpu | None:
    """The GPU at `index`; None if the driver refuses access, as to the GPU of another container.

    Raises `NvmlUnavailable`, `GpuLost` or `GpuUnidentified`.
    """
    query = "nvmlDeviceGetHandleByIndex"
    try:
        handle = library.nvml.nvmlDeviceGetHandleByIndex(index)
        query = "nvmlDeviceGetUUID"
        identity = board_identity(library, handle, index, hostname)
    except library.nvml.NVMLError as error:
        if library.record_error(query, error.value):
            return None
        raise GpuUnidentified(f"does not return its uuid ({library.error_name(error.value)})") from error
    return ListedGpu(handle, identity, list(_mig_instances(library, handle, identity)))


def _mig_instances(library: NvmlLibrary, handle: Handle, board: GpuIdentity) -> Iterator[tuple[Handle, GpuIdentity]]:
    nvml = library.nvml
    try:
        enabled = nvml.nvmlDeviceGetMigMode(handle)[0]
        max_count = nvml.nvmlDeviceGetMaxMigDeviceCount(handle) if enabled else 0
    except nvml.NVMLError as error:
        library.record_error("nvmlDeviceGetMigMode", error.value)  # boards without MIG do not support this
        return
    for index in range(max_count):
        try:
            device = nvml.nvmlDeviceGetMigDeviceHandleByIndex(handle, index)
            yield device, instance_identity(library, device, board)
        except nvml.NVMLError as error:
            if error.value != nvml.NVML_ERROR_NOT_FOUND:  # there is no instance with this index
                library.record_error("nvmlDeviceGetMigDeviceHandleByIndex", error.value)


@dataclass
class GpuRegistry:
    """Creates the GPUs that were found, and keeps their histories over restarts of the driver."""

    config: NvmlConfig
    context: Context
    xids: XidCounts
    logged_xids: dict[BusId, list[LoggedXid]] = field(default_factory=dict)
    """Those from before the start, of GPUs that have not been found yet."""
    histories: dict[str, DeviceHistory] = field(default_factory=dict)
    """By the uuid of the device."""
    gpus: dict[str, Gpu] = field(default_factory=dict)
    """Every GPU since the start of the receiver, by the uuid of the board."""
    _unknown: dict[int, UnknownGpu] = field(default_factory=dict)

    def unknown(self, index: int, hostname: str) -> UnknownGpu:
        """The GPU at an index whose uuid is not known."""
        return self._unknown.setdefault(index, UnknownGpu(index, hostname, self.context.clock))

    def create(self, library: NvmlLibrary, listed: ListedGpu) -> Gpu:
        """The GPU, ready to be scraped. Replaces an earlier one with the same uuid."""
        if gpu_id := bus_id(str(listed.identity.resource.get(semconv.GPU_PCI_BUS_ID, ""))):
            self.xids.add_logged(listed.identity.uuid, self.logged_xids.pop(gpu_id, ()))
        instances = [self._device(library, handle, identity) for handle, identity in listed.instances]
        gpu = Gpu(self._device(library, listed.handle, listed.identity), instances)
        self.gpus[listed.identity.uuid] = gpu
        return gpu

    def _device(self, library: NvmlLibrary, handle: Handle, identity: GpuIdentity) -> Device:
        if identity.uuid not in self.histories:
            self.histories[identity.uuid] = DeviceHistory.start(self.config, self.context.clock)
        history = self.histories[identity.uuid]
        return Device(library, handle, identity, history, self.xids, self.config, self.context)
