"""The GPU memory of processes, as gauges report it."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from otel_zernel.otlp.points import AttributeValue
from otel_zernel_libraries.training import semconv
from otel_zernel_libraries.training.points import SeenValue
from otel_zernel_libraries.training.state.readers import Read, gauge

_LONGEST_TEXT: Final = 64


@dataclass(slots=True)
class SeenMemory:
    """The memory (bytes) of one process on one GPU."""

    id: str
    pid: int
    gpu: str
    """`zernel.gpu.index`."""
    used: float | None = None
    peak: float | None = None
    touched: float = 0.0
    ended_at: float | None = None


def memory_key_of(seen: SeenValue) -> tuple[str, int, str] | None:
    """The host, the process and the GPU of a reading; None without a process. The GPU is 0 if it is not known."""
    pid = _either(seen, "process.pid")
    if not isinstance(pid, int) or isinstance(pid, bool):
        return None
    gpu = str(_either(seen, semconv.GPU_INDEX, 0))[:_LONGEST_TEXT]
    return str(_either(seen, "host.name", ""))[:_LONGEST_TEXT], pid, gpu


def _either(seen: SeenValue, key: str, default: AttributeValue | None = None) -> AttributeValue | None:
    """An attribute of the point, or of its resource."""
    return seen.attributes.get(key, seen.resource.get(key, default))


MEMORY_READERS: Final[Mapping[str, Read]] = {
    semconv.CUDA_MEMORY_USED: gauge("used"),
    semconv.GPU_MEMORY_USED: gauge("used"),
    semconv.CUDA_MEMORY_PEAK: gauge("peak"),
    semconv.GPU_MEMORY_PEAK: gauge("peak"),
}
"""By metric: how its points change the memory of a process. The end of `used` removes it."""
