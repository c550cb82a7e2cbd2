"""The findings of `otel-zernel doctor` about NVIDIA's driver and GPUs."""

from collections.abc import Iterator
from pathlib import Path

from otel_zernel.component import Finding
from otel_zernel_receivers.nvml.driver.library import NvmlLibrary, NvmlUnavailable

_NO_GPU = "this machine has no NVIDIA GPU"
_NVIDIA = "0x10de"
"""The vendor's number among PCI devices."""


def has_nvidia_device(devices: Path = Path("/sys/bus/pci/devices")) -> bool:
    """Whether a PCI device is NVIDIA's. True if the devices cannot be listed: then nothing is known."""
    try:
        vendors = [path.read_text().strip() for path in devices.glob("*/vendor")]
    except OSError:
        return True
    return _NVIDIA in vendors or not vendors


def examine() -> Iterator[Finding]:
    """The driver and the GPUs that it lists, or why there are none."""
    try:
        library = NvmlLibrary()
    except NvmlUnavailable as problem:
        has_gpu = has_nvidia_device()
        yield Finding("driver", str(problem) if has_gpu else _NO_GPU, ok=False if has_gpu else None)
        return
    try:
        yield from _examine_driver(library)
    except NvmlUnavailable as problem:
        yield Finding("driver", str(problem), ok=False)
    finally:
        library.close()


def _examine_driver(library: NvmlLibrary) -> Iterator[Finding]:
    from otel_zernel_receivers.nvml.gpus.gpu import count_gpus  # a machine without a driver does without it

    version, cuda = library.driver_version or "of unknown version", library.cuda_version or "of unknown version"
    yield Finding("driver", f"{version}, supports CUDA up to {cuda}", ok=True)
    gpus = count_gpus(library)
    if not gpus:
        yield Finding(
            "GPUs", "the driver lists none; check `nvidia-smi`, or give the container access to GPUs", ok=False
        )
    for index in range(gpus):
        yield _examine_gpu(library, index)


def _examine_gpu(library: NvmlLibrary, index: int) -> Finding:
    nvml = library.nvml
    try:
        handle = nvml.nvmlDeviceGetHandleByIndex(index)
        return Finding(f"GPU {index}", f"{nvml.nvmlDeviceGetName(handle)}, {nvml.nvmlDeviceGetUUID(handle)}", ok=True)
    except nvml.NVMLError as error:
        return Finding(f"GPU {index}", f"does not return its name and uuid ({error}); check `nvidia-smi`", ok=False)
