"""The holders of GPUs, from a kubelet on a real socket.

GPUs as device plugins and drivers name them.
"""

from collections.abc import Iterable

import grpc
import pytest

from otel_zernel.errors import NoAnswer
from otel_zernel_processors.kubernetes.config import PodResourcesConfig
from otel_zernel_processors.kubernetes.gpus.devices import GpuBoards, claimed_device, plugin_device
from otel_zernel_processors.kubernetes.gpus.holders import GpuHolder, HolderHistory, Kubelet
from tests.processors.kubernetes.gpus.kubelet import FakeKubelet, allocated, claimed

UUID = "GPU-12345678-aaaa-bbbb-cccc-0123456789ab"


def client_of(kubelet: FakeKubelet) -> Kubelet:
    return Kubelet(PodResourcesConfig(socket=str(kubelet.socket)))


async def test_devices_of_plugins_and_of_claims_are_listed_and_those_of_others_are_not(kubelet: FakeKubelet) -> None:
    kubelet.pods = [
        allocated("a", UUID),
        allocated("b", "mlx5_0", resource="rdma/hca"),
        claimed("c", "gpu-0", "gpu-1"),
        claimed("d", "nic-0", driver="net.example.com"),
    ]
    client = client_of(kubelet)
    async with kubelet.serving():
        holders = await client.holders()
    await client.close()
    assert [(holder.pod, holder.device.name, holder.claim) for holder in holders] == [
        ("a", UUID, ""),
        ("c", "gpu-0", "train/one-gpu"),
        ("c", "gpu-1", "train/one-gpu"),
    ]
    assert {holder.container for holder in holders} == {"worker"}


async def test_an_open_channel_survives_a_restart_of_the_kubelet(kubelet: FakeKubelet) -> None:
    client = client_of(kubelet)
    async with kubelet.serving():
        assert await client.holders() == ()
    with pytest.raises(NoAnswer, match="mount the folder of the socket"):
        await client.holders()
    kubelet.pods = [allocated("a", UUID)]
    async with kubelet.serving():
        holders: Iterable[GpuHolder] = ()
        while not holders:
            try:
                holders = await client.holders()
            except NoAnswer:
                continue
    await client.close()


async def test_the_list_of_a_dense_node_is_read(kubelet: FakeKubelet) -> None:
    """It is larger than the 4 MiB that gRPC accepts by default."""
    kubelet.pods = [allocated(f"pod-{pod}", *(f"{UUID}::{pod * 600 + n}" for n in range(600))) for pod in range(200)]
    client = client_of(kubelet)
    async with kubelet.serving():
        assert len(await client.holders()) == 120_000
    await client.close()


async def test_a_refusal_and_garbage_are_one_sentence(kubelet: FakeKubelet) -> None:
    client = client_of(kubelet)
    async with kubelet.serving():
        kubelet.refusal = grpc.StatusCode.RESOURCE_EXHAUSTED
        with pytest.raises(NoAnswer, match=r"kubelet.sock gives no answer: RESOURCE_EXHAUSTED too many requests$"):
            await client.holders()
        kubelet.refusal, kubelet.garbage = None, b"\xff\xff\xff"
        with pytest.raises(NoAnswer, match="an answer that is not one of the kubelet"):
            await client.holders()
    await client.close()


def holder(pod: str, device: str = UUID, container: str = "worker", claim: str = "") -> GpuHolder:
    return GpuHolder("train", pod, container, plugin_device(device, "nvidia.com/gpu"), claim)


def test_of_two_holders_of_an_exclusive_gpu_the_later_one_is_right() -> None:
    """Kubelets before 1.34 also list pods that have ended."""
    history = HolderHistory()
    old, new = holder("old"), holder("new")
    assert history.present([old], lambda *_: False) == (old,)
    assert history.present([new, old], lambda *_: False) == (new,)
    assert history.present([new, old], lambda *_: False) == (new,)
    assert history.present([new, old], lambda namespace, name: name == "new") == (old,)


def test_replicas_claims_and_containers_of_a_pod_may_share_a_gpu() -> None:
    history = HolderHistory()
    shared = (
        holder("a", f"{UUID}::0"),
        holder("b", f"{UUID}::1"),
        holder("c", "gpu-0", claim="train/shared"),
        holder("d", "gpu-0", claim="train/shared"),
        holder("e", "GPU-2", container="one"),
        holder("e", "GPU-2", container="two"),
    )
    assert history.present(shared, lambda *_: False) == shared


MIG = "MIG-87654321-aaaa-bbbb-cccc-0123456789ab"
BOARDS = (
    {"hw.id": UUID, "zernel.gpu.device": "nvidia0"},
    {"hw.id": MIG, "hw.parent": UUID, "zernel.gpu.device": "nvidia0", "zernel.gpu.mig.gpu_instance": 2},
)


def boards() -> GpuBoards:
    known = GpuBoards()
    for resource in BOARDS:
        known.learn(resource)
    return known


@pytest.mark.parametrize(
    ("name", "resource", "sharing", "attributes"),
    [
        (UUID, "nvidia.com/gpu", "exclusive", {"hw.id": UUID}),
        (f"{UUID}::3", "nvidia.com/gpu", "time_slicing", {"hw.id": UUID}),
        (UUID, "nvidia.com/gpu.shared", "time_slicing", {"hw.id": UUID}),
        (MIG, "nvidia.com/mig-1g.10gb", "mig", {"hw.id": MIG, "hw.parent": UUID}),
        (f"{MIG}::1", "nvidia.com/mig-1g.10gb.shared", "mig_time_slicing", {"hw.id": MIG, "hw.parent": UUID}),
        (f"MIG-{UUID}/1/0", "nvidia.com/mig-1g.5gb", "mig", {"hw.id": f"MIG-{UUID}/1/0"}),
        ("nvidia0", "nvidia.com/gpu", "exclusive", {"hw.id": UUID}),
        ("nvidia0/vgpu3", "nvidia.com/gpu", "time_slicing", {"hw.id": UUID}),
        ("nvidia0/gi2", "nvidia.com/gpu", "mig", {"hw.id": MIG, "hw.parent": UUID}),
        ("nvidia0/gi2/vgpu1", "nvidia.com/gpu", "mig_time_slicing", {"hw.id": MIG, "hw.parent": UUID}),
        ("nvidia7", "nvidia.com/gpu", "exclusive", {"zernel.gpu.allocated_device": "nvidia7"}),
        ("nvidia0/gi5", "nvidia.com/gpu", "mig", {"zernel.gpu.allocated_device": "nvidia0/gi5"}),
        ("something", "nvidia.com/mig-1g.5gb", "mig", {"zernel.gpu.allocated_device": "something"}),
    ],
)  # fmt: skip
def test_a_device_is_named_for_what_it_is(name: str, resource: str, sharing: str, attributes: dict[str, str]) -> None:
    device = plugin_device(name, resource)
    assert device.sharing == sharing
    assert boards().attributes(device) == attributes


@pytest.mark.parametrize(
    ("name", "sharing", "attributes"),
    [
        ("gpu-0", "exclusive", {"hw.id": UUID}),
        ("gpu-0-mig-1g.10gb-19-4", "mig", {"hw.parent": UUID, "zernel.gpu.allocated_device": "gpu-0-mig-1g.10gb-19-4"}),
        ("gpu-9", "exclusive", {"zernel.gpu.allocated_device": "gpu-9"}),
        ("vfio-0", "exclusive", {"zernel.gpu.allocated_device": "vfio-0"}),
    ],
)  # fmt: skip
def test_a_device_of_a_claim_is_found_by_its_minor_number(name: str, sharing: str, attributes: dict[str, str]) -> None:
    device = claimed_device(name)
    assert device.sharing == sharing
    assert boards().attributes(device) == attributes
