"""The findings of `otel-zernel doctor` about NVIDIA's driver and GPUs."""

from collections.abc import Iterator

from otel_zernel.component import Finding
from otel_zernel_receivers.nvml.driver.library import NvmlLibrary, NvmlUnavailable
from otel_zernel_receivers.nvml.gpus.gpu import count_gpus


def examine() -> Iterator[Finding]:
    """The driver and the GPUs that it lists, or why there are none."""
    try:
        library = NvmlLibrary()
    except NvmlUnavailable as problem:
        yield Finding("driver", str(problem), ok=False)
        return
    try:
        yield from _examine_driver(library)
    except NvmlUnavailable as problem:
        yield Finding("driver", str(problem), ok=False)
    finally:
        library.close()


def _examine_driver(library: NvmlLibrary) -> Iterator[Finding]:
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
