"""Who a device is: the attributes of its resource, asked once."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from otel_zernel.otlp.points import AttributeValue
from otel_zernel_receivers.nvml.driver.library import Handle, Library

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
"""NVML_DEVICE_ARCH_… in nvml.h, as nvidia-smi names them."""


@dataclass(frozen=True, slots=True)
class Identity:
    """A board, or a MIG instance of one. Its uuid is what it is known by: an index can change."""

    uuid: str
    index: int
    """Of the board, on this host, at this time."""
    resource: dict[str, AttributeValue]


def board(library: Library, device: Handle, index: int, hostname: str) -> Identity:
    """A board's identity. Raises `NVMLError` if it does not even tell its uuid."""
    nvml = library.nvml
    uuid = str(nvml.nvmlDeviceGetUUID(device))
    asked = _Asking(library, device)
    attributes: dict[str, AttributeValue | None] = {
        "service.instance.id": hostname,
        "host.name": hostname,
        "hw.type": "gpu",
        "hw.vendor": "NVIDIA",
        "hw.id": uuid,
        "hw.model": asked("nvmlDeviceGetName"),
        "hw.serial_number": asked("nvmlDeviceGetSerial"),
        "hw.firmware_version": asked("nvmlDeviceGetVbiosVersion"),
        "hw.driver_version": library.driver,
        "zernel.gpu.index": index,
        "zernel.gpu.device": asked("nvmlDeviceGetMinorNumber", "nvidia{}".format),
        "zernel.gpu.pci.bus_id": asked("nvmlDeviceGetPciInfo", lambda pci: pci.busId),
        "zernel.gpu.board_part_number": asked("nvmlDeviceGetBoardPartNumber"),
        "zernel.gpu.architecture": asked("nvmlDeviceGetArchitecture", ARCHITECTURES.get),
        "zernel.gpu.numa_node": asked("nvmlDeviceGetNumaNodeId"),
        "zernel.gpu.cuda_version": library.cuda,
    }
    return Identity(uuid, index, {name: value for name, value in attributes.items() if value not in (None, "")})


def instance(library: Library, device: Handle, parent: Identity) -> Identity:
    """The identity of a MIG instance: its own uuid and profile, and the rest of its board's."""
    uuid = str(library.nvml.nvmlDeviceGetUUID(device))
    asked = _Asking(library, device)
    name = asked("nvmlDeviceGetName") or ""
    attributes = {
        **parent.resource,
        "hw.id": uuid,
        "hw.parent": parent.uuid,
        "hw.model": str(parent.resource.get("hw.model", "")),
        "zernel.gpu.mig.profile": str(name).rpartition("MIG ")[2],
        "zernel.gpu.mig.gpu_instance": asked("nvmlDeviceGetGpuInstanceId"),
        "zernel.gpu.mig.compute_instance": asked("nvmlDeviceGetComputeInstanceId"),
    }
    return Identity(uuid, parent.index, {name: value for name, value in attributes.items() if value not in (None, "")})


def _itself(answer: AttributeValue) -> AttributeValue:
    return answer


@dataclass(frozen=True, slots=True)
class _Asking:
    library: Library
    device: Handle

    def __call__(self, function: str, form: Callable[[Any], AttributeValue | None] = _itself) -> AttributeValue | None:
        """What the function says, in another form if given; None if the device has no answer."""
        try:
            answer = getattr(self.library.nvml, function)(self.device)
        except (AttributeError, ValueError):  # a pynvml that is older than the function, a text that is none
            return None
        except self.library.nvml.NVMLError as error:
            self.library.unsupported(function, error.value)
            return None
        return form(answer)
