"""What `otel-zernel doctor` says of NVIDIA GPUs here: the driver, the library and the boards, or why there are none."""

from collections.abc import Iterator

from otel_zernel.component import Finding
from otel_zernel_receivers.nvml.driver.library import Library, Unavailable
from otel_zernel_receivers.nvml.gpus.gpu import count


def examine() -> Iterator[Finding]:
    """What the driver lists now."""
    try:
        library = Library()
    except Unavailable as problem:
        yield Finding("driver", str(problem), ok=False)
        return
    try:
        yield from _driver(library)
    except Unavailable as problem:
        yield Finding("driver", str(problem), ok=False)
    finally:
        library.close()


def _driver(library: Library) -> Iterator[Finding]:
    yield Finding("driver", f"{library.driver or 'of unknown version'}, for CUDA up to {library.cuda or '?'}", ok=True)
    gpus = count(library)
    if not gpus:
        yield Finding("GPUs", "the driver lists none; give the container some, or see `nvidia-smi`", ok=False)
    for index in range(gpus):
        yield _board(library, index)


def _board(library: Library, index: int) -> Finding:
    nvml = library.nvml
    try:
        handle = nvml.nvmlDeviceGetHandleByIndex(index)
        return Finding(f"GPU {index}", f"{nvml.nvmlDeviceGetName(handle)}, {nvml.nvmlDeviceGetUUID(handle)}", ok=True)
    except nvml.NVMLError as error:
        return Finding(f"GPU {index}", f"does not say who it is ({error}); see `nvidia-smi`", ok=False)
