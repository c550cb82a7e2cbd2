"""A GPU: the board and its MIG instances, which share a thread, and how those of a host are found."""

from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass, field

from otel_zernel.batch import Batch
from otel_zernel.component import Context
from otel_zernel_receivers.nvml.config import NvmlConfig
from otel_zernel_receivers.nvml.driver.events import Xids
from otel_zernel_receivers.nvml.driver.library import Handle, Library, Lost, Nameless
from otel_zernel_receivers.nvml.gpus.device import Device
from otel_zernel_receivers.nvml.gpus.history import History
from otel_zernel_receivers.nvml.gpus.identity import Identity, board, instance


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
        """Its own, and those of its MIG instances."""
        return [device.identity.uuid for device in (self.board, *self.instances)]

    @property
    def drain_interval(self) -> float | None:
        """Seconds after which the sample buffers want to be read again; None if there are none."""
        return self.board.drain_interval

    def scrape(self) -> Batch:
        """The points of now. Raises `Unavailable` or `Lost`."""
        return Batch.join([device.scrape() for device in (self.board, *self.instances)])

    def drain(self) -> None:
        """Reads the sample buffers; what is in them goes out with the next scrape. Raises like `scrape`."""
        self.board.drain()

    def failed(self) -> Batch:
        """What is left to say when it is lost."""
        return self.board.failed()


@dataclass(frozen=True, slots=True)
class Found:
    """A GPU that the driver lists."""

    handle: Handle
    identity: Identity
    instances: list[tuple[Handle, Identity]]

    @property
    def uuids(self) -> list[str]:
        """Its own, and those of its MIG instances."""
        return [self.identity.uuid, *(identity.uuid for _, identity in self.instances)]


def count(library: Library) -> int:
    """How many GPUs the driver lists. Raises `Unavailable`."""
    try:
        return int(library.nvml.nvmlDeviceGetCount())
    except library.nvml.NVMLError as error:
        with suppress(Lost):
            library.unsupported("nvmlDeviceGetCount", error.value)
        return 0


def find(library: Library, index: int, hostname: str) -> Found | None:
    """The GPU, if it says who it is: another container's does not. Raises `Unavailable`, `Lost` or `Nameless`."""
    query = "nvmlDeviceGetHandleByIndex"
    try:
        handle = library.nvml.nvmlDeviceGetHandleByIndex(index)
        query = "nvmlDeviceGetUUID"
        identity = board(library, handle, index, hostname)
    except library.nvml.NVMLError as error:
        if library.unsupported(query, error.value):
            return None
        raise Nameless(f"does not say who it is ({library.name_of(error.value)})") from error
    return Found(handle, identity, list(_instances(library, handle, identity)))


def _instances(library: Library, handle: Handle, parent: Identity) -> Iterator[tuple[Handle, Identity]]:
    nvml = library.nvml
    try:
        enabled = nvml.nvmlDeviceGetMigMode(handle)[0]
        most = nvml.nvmlDeviceGetMaxMigDeviceCount(handle) if enabled else 0
    except nvml.NVMLError as error:
        library.unsupported("nvmlDeviceGetMigMode", error.value)  # a board without MIG
        return
    for index in range(most):
        try:
            device = nvml.nvmlDeviceGetMigDeviceHandleByIndex(handle, index)
            yield device, instance(library, device, parent)
        except nvml.NVMLError as error:
            if error.value != nvml.NVML_ERROR_NOT_FOUND:  # a free place
                library.unsupported("nvmlDeviceGetMigDeviceHandleByIndex", error.value)


@dataclass
class Maker:
    """Makes GPUs of what was found, with the history of those that were there before."""

    config: NvmlConfig
    context: Context
    xids: Xids
    histories: dict[str, History] = field(default_factory=dict)
    """By uuid."""
    gpus: dict[str, Gpu] = field(default_factory=dict)
    """All that were ever there, by the board's uuid."""

    def make(self, library: Library, found: Found) -> Gpu:
        """The GPU, ready to be scraped."""
        instances = [self._device(library, handle, identity) for handle, identity in found.instances]
        gpu = Gpu(self._device(library, found.handle, found.identity), instances)
        self.gpus[found.identity.uuid] = gpu
        return gpu

    def _device(self, library: Library, handle: Handle, identity: Identity) -> Device:
        if identity.uuid not in self.histories:
            self.histories[identity.uuid] = History.new(self.config, self.context.clock.time_ns)
        history = self.histories[identity.uuid]
        return Device(library, handle, identity, history, self.xids, self.config, self.context)
