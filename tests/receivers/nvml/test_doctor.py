"""`otel-zernel doctor` reports the driver and its GPUs, or why there are none."""

from pathlib import Path

import pytest

from otel_zernel.component import Finding
from otel_zernel_receivers.nvml import NvmlReceiver, doctor
from otel_zernel_receivers.nvml.driver import library as nvml
from tests.receivers.nvml.running import Boot


def test_the_driver_and_its_boards_are_reported_and_nvml_is_closed_again(driver: Boot) -> None:
    machine = driver("h200")
    first, *boards = NvmlReceiver.examine()
    assert first.topic == "driver"
    assert "supports CUDA up to 1" in first.text
    assert boards
    assert all(board.ok and "H200" in board.text and "GPU-" in board.text for board in boards)
    assert machine.users == 0


def test_a_lost_board_is_reported_beside_the_others(driver: Boot) -> None:
    controls = driver("h100x8")
    controls.apply("gpu 2", "lost = !15")
    assert [finding.topic for finding in NvmlReceiver.examine() if not finding.ok] == ["GPU 2"]
    controls.apply("gpu 2", "lost -")


@pytest.mark.parametrize(
    ("scenario", "trouble", "topic", "text"),
    [("none", "init -", "GPUs", "lists none"), ("h200", "init = !9", "driver", "is not loaded")],
)
def test_a_driver_without_boards_and_a_broken_driver_are_reported(
    driver: Boot, scenario: str, trouble: str, topic: str, text: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(doctor, "has_nvidia_device", lambda: True)
    controls = driver(scenario)
    controls.apply("driver", trouble)
    (wrong,) = (finding for finding in NvmlReceiver.examine() if not finding.ok)
    assert wrong.topic == topic
    assert text in wrong.text
    controls.apply("driver", "init -")


@pytest.mark.parametrize(
    ("has_gpu", "text", "ok"),
    [(True, "libnvidia-ml.so.1 was not found; install it", False), (False, "this machine has no NVIDIA GPU", None)],
    ids=["gpu", "none"],
)
def test_a_missing_driver_has_a_remedy_if_there_is_a_gpu(
    has_gpu: bool, text: str, ok: bool | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    def absent() -> None:
        raise nvml.NvmlUnavailable("libnvidia-ml.so.1 was not found; install it")

    monkeypatch.setattr(nvml, "_pynvml", absent)
    monkeypatch.setattr(doctor, "has_nvidia_device", lambda: has_gpu)
    assert list(NvmlReceiver.examine()) == [Finding("driver", text, ok=ok)]


@pytest.mark.parametrize(
    ("vendors", "has_gpu"),
    [(["0x8086", "0x10de"], True), (["0x8086"], False), ([], True)],
    ids=["gpu", "none", "unknown"],
)
def test_a_gpu_is_known_by_the_vendor_of_a_pci_device(tmp_path: Path, vendors: list[str], has_gpu: bool) -> None:
    for number, vendor in enumerate(vendors):
        (tmp_path / str(number)).mkdir()
        (tmp_path / str(number) / "vendor").write_text(f"{vendor}\n")
    assert doctor.has_nvidia_device(tmp_path) == has_gpu
