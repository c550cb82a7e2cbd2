"""GPUs as device plugins and drivers name them."""

import pytest

from otel_zernel_processors.kubernetes.gpus.devices import GpuBoards, claimed_device, plugin_device

UUID = "GPU-12345678-aaaa-bbbb-cccc-0123456789ab"
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
