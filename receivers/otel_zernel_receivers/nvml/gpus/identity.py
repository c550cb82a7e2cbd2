"""The identity of a device: its uuid and the attributes of its resource, which are queried once."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from otel_zernel.otlp.points import AttributeValue
from otel_zernel_libraries.training import semconv
from otel_zernel_receivers.nvml.driver.library import Handle, NvmlLibrary
from otel_zernel_receivers.nvml.points.attributes import DETAILS

ARCHITECTURES = {
    2: "Kepler",
    3: "Maxwell",
    4: "Pascal",
    5: "Volta",
    6: "Turing",
    7: "Ampere",
    8: "Ada Lovelace",
    9: "Hopper",
    10: "Blackwell",
    13: "Rubin",
}
"""NVML_DEVICE_ARCH_… in nvml.h, with the names of nvidia-smi."""

OF_POINTS = ("hw.id", "hw.type", "hw.name", "hw.model", "hw.parent", semconv.GPU_INDEX)
"""The attributes of the resource that every point repeats. The semantic conventions for hardware put them there."""


@dataclass(frozen=True, slots=True)
class GpuIdentity:
    """The identity of a board or a MIG instance."""

    uuid: str
    """Identifies the device. An index can change."""
    index: int
    """The current index of the board on this host."""
    resource: dict[str, AttributeValue]
    """The attributes of the resource."""

    @property
    def of_points(self) -> dict[str, AttributeValue]:
        """The attributes of every point: backends that store points without their resource find the GPU by them."""
        return {name: self.resource[name] for name in OF_POINTS if name in self.resource}

    @property
    def details(self) -> dict[str, AttributeValue]:
        """The attributes of `zernel.gpu.info`."""
        return {name: self.resource[name] for name in DETAILS if name in self.resource}

    @property
    def gpu_instance(self) -> int | None:
        """The id of the MIG instance's GPU instance; None for a board."""
        id_ = self.resource.get(semconv.GPU_MIG_GPU_INSTANCE)
        return id_ if isinstance(id_, int) else None


def board_identity(library: NvmlLibrary, device: Handle, index: int, hostname: str) -> GpuIdentity:
    """The identity of a board. Raises `NVMLError` if the board does not return its uuid."""
    nvml = library.nvml
    uuid = str(nvml.nvmlDeviceGetUUID(device))
    read = _AttributeReader(library, device)
    attributes: dict[str, AttributeValue | None] = {
        "host.name": hostname,
        "hw.type": "gpu",
        "hw.vendor": "NVIDIA",
        "hw.id": uuid,
        "hw.name": f"GPU {index}",
        "hw.model": read("nvmlDeviceGetName"),
        "hw.serial_number": read("nvmlDeviceGetSerial"),
        "hw.firmware_version": read("nvmlDeviceGetVbiosVersion"),
        "hw.driver_version": library.driver_version,
        semconv.GPU_INDEX: index,
        semconv.GPU_DEVICE: read("nvmlDeviceGetMinorNumber", "nvidia{}".format),
        semconv.GPU_PCI_BUS_ID: read("nvmlDeviceGetPciInfo", lambda pci: pci.busId),
        semconv.GPU_BOARD_PART_NUMBER: read("nvmlDeviceGetBoardPartNumber"),
        semconv.GPU_ARCHITECTURE: read("nvmlDeviceGetArchitecture", ARCHITECTURES.get),
        semconv.GPU_NUMA_NODE: read("nvmlDeviceGetNumaNodeId"),
        semconv.GPU_CUDA_VERSION: library.cuda_version,
    }
    return GpuIdentity(uuid, index, {name: value for name, value in attributes.items() if value not in (None, "")})


def instance_identity(library: NvmlLibrary, device: Handle, board: GpuIdentity) -> GpuIdentity:
    """The identity of a MIG instance: its own uuid, profile and ids, and the other attributes of its board.

    Raises `NVMLError` if the instance does not return its uuid.
    """
    uuid = str(library.nvml.nvmlDeviceGetUUID(device))
    read = _AttributeReader(library, device)
    name = read("nvmlDeviceGetName") or ""
    profile = str(name).rpartition("MIG ")[2]
    ids = [read(f"nvmlDeviceGet{kind}InstanceId") for kind in ("Gpu", "Compute")]
    attributes = {
        **board.resource,
        "hw.id": uuid,
        "hw.name": f"GPU {board.index} MIG {profile} {'/'.join(str(id_) for id_ in ids if id_ is not None)}".rstrip(),
        "hw.parent": board.uuid,
        "hw.model": str(board.resource.get("hw.model", "")),
        semconv.GPU_MIG_PROFILE: profile,
        semconv.GPU_MIG_GPU_INSTANCE: ids[0],
        semconv.GPU_MIG_COMPUTE_INSTANCE: ids[1],
    }
    return GpuIdentity(
        uuid, board.index, {name: value for name, value in attributes.items() if value not in (None, "")}
    )


def _unchanged(answer: AttributeValue) -> AttributeValue:
    return answer


@dataclass(frozen=True, slots=True)
class _AttributeReader:
    library: NvmlLibrary
    device: Handle

    def __call__(
        self, function: str, convert: Callable[[Any], AttributeValue | None] = _unchanged
    ) -> AttributeValue | None:
        """The converted answer of the function; None if the device has none."""
        try:
            answer = getattr(self.library.nvml, function)(self.device)
        except (AttributeError, ValueError):  # pynvml is older than the function, or the text is not UTF-8
            return None
        except self.library.nvml.NVMLError as error:
            self.library.record_error(function, error.value)
            return None
        return convert(answer)
