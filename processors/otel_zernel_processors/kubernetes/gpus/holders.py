"""The containers that hold GPUs, from an answer of the kubelet. No I/O."""

from collections.abc import Callable, Iterable, Iterator
from typing import Any, NamedTuple

from otel_zernel_processors.kubernetes.gpus.devices import GpuDevice, claimed_device, plugin_device
from otel_zernel_processors.kubernetes.gpus.messages import ListPodResourcesResponse


class GpuHolder(NamedTuple):
    """A container and one GPU that it has."""

    namespace: str
    pod: str
    container: str
    device: GpuDevice
    claim: str = ""
    """`NAMESPACE/NAME` of the claim, with dynamic resource allocation."""


def holders(
    answer: bytes, is_resource: Callable[[str], bool], is_driver: Callable[[str], bool]
) -> tuple[GpuHolder, ...]:
    """The holders of the GPUs among all devices of an encoded `ListPodResourcesResponse`.

    Raises `google.protobuf.message.DecodeError`.
    """
    found: dict[GpuHolder, None] = {}
    for pod in ListPodResourcesResponse.FromString(answer).pod_resources:
        for container in pod.containers:
            where = (pod.namespace, pod.name, container.name)
            for device, claim in (*_plugin(container, is_resource), *_claimed(container, is_driver)):
                found[GpuHolder(*where, device, claim)] = None
    return tuple(found)


def _plugin(container: Any, is_resource: Callable[[str], bool]) -> Iterator[tuple[GpuDevice, str]]:
    for devices in container.devices:
        if is_resource(devices.resource_name):
            yield from ((plugin_device(id_, devices.resource_name), "") for id_ in devices.device_ids)


def _claimed(container: Any, is_driver: Callable[[str], bool]) -> Iterator[tuple[GpuDevice, str]]:
    for claim in container.dynamic_resources:
        name = f"{claim.claim_namespace}/{claim.claim_name}"
        for device in claim.claim_resources:
            if is_driver(device.driver_name):
                yield claimed_device(device.device_name), name


class HolderHistory:
    """Which holders are the present ones.

    Kubelets before 1.34 also list pods that have ended. An exclusive GPU then has two holders: the one that came last
    is right.
    """

    def __init__(self) -> None:
        self._since: dict[GpuHolder, int] = {}
        self._answers = 0

    def present(self, listed: Iterable[GpuHolder], has_ended: Callable[[str, str], bool]) -> tuple[GpuHolder, ...]:
        """The holders of one answer that hold their GPU now. `has_ended` says it of a pod's namespace and name."""
        self._answers += 1
        every = tuple(listed)
        self._since = {one: self._since.get(one, self._answers) for one in every}
        newest: dict[str, GpuHolder] = {}
        for one in every:
            if has_ended(one.namespace, one.pod):
                continue
            other = newest.get(one.device.name)
            if other is None or self._since[one] >= self._since[other]:
                newest[one.device.name] = one
        return tuple(one for one in every if self._is_present(one, newest, has_ended))

    def _is_present(self, one: GpuHolder, newest: dict[str, GpuHolder], has_ended: Callable[[str, str], bool]) -> bool:
        if has_ended(one.namespace, one.pod):
            return False
        last = newest[one.device.name]
        same_pod = (last.namespace, last.pod) == (one.namespace, one.pod)
        # A claim may be shared by pods, and by the containers of one pod.
        return bool(one.claim) or same_pod
