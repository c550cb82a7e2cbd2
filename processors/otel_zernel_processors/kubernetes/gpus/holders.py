"""The containers that hold GPUs, as the kubelet's pod-resources API lists them.

The numbers of its messages are those of pkg/apis/podresources/v1/api.proto in the kubelet. Other fields are skipped.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping
from fnmatch import fnmatchcase
from functools import partial
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from google.protobuf.message import DecodeError as ProtobufError

from otel_zernel.batch import Batch
from otel_zernel.errors import NoAnswer
from otel_zernel.otlp import points as otlp
from otel_zernel.otlp.staleness import encode_staleness
from otel_zernel.protobuf import delimited
from otel_zernel.runtime.threads import run_in_thread
from otel_zernel.text import printable
from otel_zernel_libraries.protobuf import declared_file, message_of
from otel_zernel_processors.kubernetes.config import PodResourcesConfig
from otel_zernel_processors.kubernetes.declared import GPU_POD
from otel_zernel_processors.kubernetes.gpus.devices import GpuDevice, claimed_device, plugin_device

if TYPE_CHECKING:  # importing gRPC takes 27 MB, and most configurations need no GPUs
    from grpc.aio import Channel

_LONGEST_ANSWER: Final = 16 << 20
"""Bytes. gRPC's default of 4 MiB is too short for nodes with 60,000 devices, whose list has 5.7 MB."""
_TIMEOUT: Final = 10.0
"""Seconds for one answer. dcgm-exporter waits as long."""
_LIST: Final = "/v1.PodResourcesLister/List"
_FILE: Final = declared_file(
    "podresources.proto",
    "v1",
    {
        "ListPodResourcesRequest": "",
        "ListPodResourcesResponse": "1 PodResources* pod_resources",
        "PodResources": "1 string name; 2 string namespace; 3 ContainerResources* containers",
        "ContainerResources": "1 string name; 2 ContainerDevices* devices; 5 DynamicResource* dynamic_resources",
        "ContainerDevices": "1 string resource_name; 2 string* device_ids",
        "DynamicResource": "2 string claim_name; 3 string claim_namespace; 4 ClaimResource* claim_resources",
        "ClaimResource": "2 string driver_name; 3 string pool_name; 4 string device_name",
    },
)
_ListPodResourcesResponse = message_of(_FILE, "ListPodResourcesResponse")


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
    held: dict[GpuHolder, None] = {}
    for pod in _ListPodResourcesResponse.FromString(answer).pod_resources:
        for container in pod.containers:
            where = (pod.namespace, pod.name, container.name)
            for device, claim in (*_plugin(container, is_resource), *_claimed(container, is_driver)):
                held[GpuHolder(*where, device, claim)] = None
    return tuple(held)


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
        self._since = {holder: self._since.get(holder, self._answers) for holder in every}
        newest: dict[str, GpuHolder] = {}
        for holder in every:
            if has_ended(holder.namespace, holder.pod):
                continue
            later = newest.get(holder.device.name)
            if later is None or self._since[holder] >= self._since[later]:
                newest[holder.device.name] = holder
        return tuple(holder for holder in every if self._is_present(holder, newest, has_ended))

    def _is_present(
        self, holder: GpuHolder, newest: dict[str, GpuHolder], has_ended: Callable[[str, str], bool]
    ) -> bool:
        if has_ended(holder.namespace, holder.pod):
            return False
        last = newest[holder.device.name]
        same_pod = (last.namespace, last.pod) == (holder.namespace, holder.pod)
        # A claim may be shared by pods, and by the containers of one pod.
        return bool(holder.claim) or same_pod


class Kubelet:
    """The pod-resources API of this node."""

    def __init__(self, config: PodResourcesConfig) -> None:
        self._config = config
        self._channel: Channel | None = None

    async def close(self) -> None:
        if self._channel:
            await self._channel.close(None)
            self._channel = None

    async def holders(self) -> tuple[GpuHolder, ...]:
        """All holders of GPUs. Raises `NoAnswer`."""
        import grpc

        call = self._connected().unary_unary(_LIST, request_serializer=bytes, response_deserializer=bytes)
        try:
            answer = await call(b"", timeout=_TIMEOUT)
        except grpc.RpcError as error:
            raise NoAnswer(self._reason(error.code().name, error.details() or "")) from error
        config = self._config
        parse = partial(holders, answer, partial(fits, config.resources), partial(fits, config.drivers))
        try:
            return await run_in_thread(parse)
        except ProtobufError as error:
            raise NoAnswer(f"{config.socket} gives an answer that is not one of the kubelet") from error

    def _connected(self) -> "Channel":
        """An open channel connects again after a restart of the kubelet."""
        import grpc

        if self._channel is None:
            options = [
                ("grpc.max_receive_message_length", _LONGEST_ANSWER),
                ("grpc.max_reconnect_backoff_ms", 5000),
                # The name of a socket is no authority.
                ("grpc.default_authority", "localhost"),
            ]
            self._channel = grpc.aio.insecure_channel(f"unix://{self._config.socket}", options)
        return self._channel

    def _reason(self, code: str, details: str) -> str:
        advice = {
            "UNAVAILABLE": "; mount the folder of the socket, and let the collector run as root",
            "UNIMPLEMENTED": "; Kubernetes 1.28 or newer is needed",
        }.get(code, "")
        return f"{self._config.socket} gives no answer: {code} {printable(details)}{advice}"


def fits(patterns: Iterable[str], name: str) -> bool:
    """Whether the name has the form of one of the patterns."""
    return any(fnmatchcase(name, pattern) for pattern in patterns)


SCOPE = otlp.Scope("otel_zernel_processors.kubernetes")
_DESCRIPTOR = otlp.Descriptor(GPU_POD.name, GPU_POD.unit, "gauge", GPU_POD.description)


class GpuPodReport:
    """One point for each holder of a GPU, and staleness points for those that hold it no more."""

    def __init__(self, resource: Mapping[str, str]) -> None:
        self._resource = otlp.encode_resource(resource)
        self._series: set[bytes] = set()

    def batch(self, holders: Iterable[Mapping[str, str]], now_ns: int) -> Batch | None:
        """The batch for holders with these attributes. None if there is nothing to report."""
        present = {otlp.encode_point_attributes(attributes) for attributes in holders}
        period = otlp.Period(0, now_ns)
        points = [otlp.encode_number_point(point, 1, period) for point in sorted(present)]
        ends = [delimited(1, series + encode_staleness("gauge", now_ns)) for series in sorted(self._series - present)]
        self._series = present
        if not (points or ends):
            return None
        metric = otlp.encode_metric(_DESCRIPTOR, b"".join((*points, *ends)))
        encoded = otlp.encode_resource_metrics(self._resource, SCOPE, [metric])
        return Batch.encoded("metrics", encoded, len(points) + len(ends))
