"""A kubelet for tests: the pod-resources API on a Unix socket, with all fields of the official messages.

They are declared here once more, so that a wrong number in the processor's own declaration shows.
"""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import grpc

from otel_zernel_libraries.protobuf import declared_file, message_of

_FILE = declared_file(
    "official.proto",
    "v1",
    {
        "ListPodResourcesRequest": "",
        "ListPodResourcesResponse": "1 PodResources* pod_resources",
        "PodResources": "1 string name; 2 string namespace; 3 ContainerResources* containers;"
        "4 int64* cpu_ids; 5 ContainerMemory* memory",
        "ContainerResources": "1 string name; 2 ContainerDevices* devices; 3 int64* cpu_ids;"
        "4 ContainerMemory* memory; 5 DynamicResource* dynamic_resources",
        "ContainerMemory": "1 string memory_type; 2 uint64 size; 3 TopologyInfo topology",
        "ContainerDevices": "1 string resource_name; 2 string* device_ids; 3 TopologyInfo topology",
        "TopologyInfo": "1 NUMANode* nodes",
        "NUMANode": "1 int64 ID",
        "DynamicResource": "2 string claim_name; 3 string claim_namespace; 4 ClaimResource* claim_resources",
        "ClaimResource": "1 CDIDevice* cdi_devices; 2 string driver_name; 3 string pool_name; 4 string device_name",
        "CDIDevice": "1 string name",
    },
)
Response = message_of(_FILE, "ListPodResourcesResponse")


def allocated(pod: str, *devices: str, resource: str = "nvidia.com/gpu", container: str = "worker") -> Any:
    """A pod of namespace `train` whose container has these devices of a device plugin."""
    answer = Response().pod_resources.add(name=pod, namespace="train")
    add = answer.containers.add(name=container, cpu_ids=[1, 2, 3])
    add.memory.add(memory_type="memory", size=1 << 30)
    given = add.devices.add(resource_name=resource, device_ids=devices)
    given.topology.nodes.add(ID=1)
    return answer


def claimed(pod: str, *devices: str, driver: str = "gpu.nvidia.com", claim: str = "one-gpu") -> Any:
    """A pod of namespace `train` whose container has these devices of a claim."""
    answer = Response().pod_resources.add(name=pod, namespace="train")
    given = answer.containers.add(name="worker").dynamic_resources.add(claim_name=claim, claim_namespace="train")
    for device in devices:
        resource = given.claim_resources.add(driver_name=driver, pool_name="node-1", device_name=device)
        resource.cdi_devices.add(name=f"k8s.gpu.nvidia.com/claim=u1-{device}")
    return answer


class FakeKubelet:
    """The socket of a kubelet, which may restart."""

    def __init__(self, folder: Path) -> None:
        self.socket = folder / "kubelet.sock"
        self.pods: list[Any] = []
        self.calls = 0
        self.refusal: grpc.StatusCode | None = None
        self.garbage = b""

    @asynccontextmanager
    async def serving(self) -> AsyncIterator[None]:
        self.socket.unlink(missing_ok=True)
        server = grpc.aio.server(options=[("grpc.max_send_message_length", -1)])
        method = grpc.unary_unary_rpc_method_handler(self._list)
        server.add_generic_rpc_handlers(
            (grpc.method_handlers_generic_handler("v1.PodResourcesLister", {"List": method}),)
        )
        server.add_insecure_port(f"unix://{self.socket}")
        await server.start()
        try:
            yield
        finally:
            await server.stop(0)

    async def _list(self, request: bytes, context: Any) -> bytes:
        self.calls += 1
        if self.refusal:
            await context.abort(self.refusal, "too many requests")
        encoded: bytes = self.garbage or Response(pod_resources=self.pods).SerializeToString()
        return encoded
