"""GPUs as Kubernetes names them. No I/O.

The names are those of NVIDIA's device plugin, of GKE's, and of NVIDIA's driver for dynamic resource allocation (DRA).
"""

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final, Literal

from otel_zernel_libraries.training import semconv

Sharing = Literal["exclusive", "time_slicing", "mig", "mig_time_slicing"]
"""How a container shares its GPU. MPS counts as time slicing: the ids of both only say that there are replicas."""

_UUID: Final = re.compile(r"(GPU|MIG)-[0-9A-Za-z-]+(?:/\d+/\d+)?")
_REPLICA: Final = "::"
"""Between a device and the number of its replica (k8s-device-plugin, internal/rm/devices.go)."""
_GKE: Final = re.compile(r"(nvidia\d+)(?:/gi(\d+))?(/vgpu\d+)?")
_DRA: Final = re.compile(r"gpu-(\d+)(-mig-.+)?")
"""`gpu-MINOR`, or `gpu-MINOR-mig-PROFILE-ID-START` (dra-driver-nvidia-gpu, deviceinfo.go)."""


@dataclass(frozen=True, slots=True)
class GpuDevice:
    """The GPU, or the part of it, that a container has."""

    sharing: Sharing = "exclusive"
    uuid: str = ""
    """Of the board or the MIG instance; empty if the name does not have it."""
    board: str = ""
    """The device file, such as `nvidia0`, if the name has no uuid."""
    instance: int | None = None
    """The id of the MIG GPU instance, if the name has one."""
    name: str = ""
    """As Kubernetes has it."""


def plugin_device(name: str, resource: str) -> GpuDevice:
    """A device of a device plugin."""
    base, replica, _ = name.partition(_REPLICA)
    is_replica = bool(replica) or resource.endswith(".shared")
    if match := _UUID.fullmatch(base):
        return GpuDevice(_sharing(match[1] == "MIG", is_replica), uuid=base, name=name)
    if match := _GKE.fullmatch(base):
        instance = int(match[2]) if match[2] else None
        is_replica = is_replica or bool(match[3])
        return GpuDevice(_sharing(instance is not None, is_replica), board=match[1], instance=instance, name=name)
    return GpuDevice(_sharing("mig" in resource, is_replica), name=name)


def claimed_device(name: str) -> GpuDevice:
    """A device of a claim. Only its driver knows whether others share it."""
    match = _DRA.fullmatch(name)
    if not match:
        return GpuDevice(name=name)
    return GpuDevice("mig" if match[2] else "exclusive", board=f"nvidia{match[1]}", name=name)


def _sharing(is_mig: bool, is_replica: bool) -> Sharing:
    if is_mig:
        return "mig_time_slicing" if is_replica else "mig"
    return "time_slicing" if is_replica else "exclusive"


@dataclass(slots=True)
class GpuBoards:
    """The uuids of this host's GPUs, learned from the resources of their metrics."""

    _uuids: dict[tuple[str, int | None], str] = field(default_factory=dict)
    """By device file, and by the id of the GPU instance for a MIG instance."""
    _parents: dict[str, str] = field(default_factory=dict)
    """The boards of MIG instances, by uuid."""

    def learn(self, resource: Mapping[str, object]) -> None:
        """Remembers a GPU from the attributes of its resource."""
        uuid, device = str(resource.get("hw.id", "")), str(resource.get(semconv.GPU_DEVICE, ""))
        parent, instance = resource.get("hw.parent"), resource.get(semconv.GPU_MIG_GPU_INSTANCE)
        if uuid and parent:
            self._parents[uuid] = str(parent)
        if uuid and device:
            self._uuids[device, instance if parent and isinstance(instance, int) else None] = uuid

    def attributes(self, device: GpuDevice) -> dict[str, str]:
        """`hw.id`, `hw.parent` of a MIG instance, and the name in Kubernetes if the uuid is not known."""
        is_part = device.sharing.startswith("mig")
        uuid = device.uuid or (self._uuids.get((device.board, device.instance)) if device.board else None) or ""
        if is_part and device.instance is None and not device.uuid:
            # DRA's names of MIG devices have no instance: only their board is known.
            parts = {"hw.id": "", "hw.parent": uuid}
        else:
            parts = {"hw.id": uuid, "hw.parent": self._parents.get(uuid, "")}
        parts[semconv.GPU_ALLOCATED_DEVICE] = "" if parts["hw.id"] else device.name
        return {name: value for name, value in parts.items() if value}
