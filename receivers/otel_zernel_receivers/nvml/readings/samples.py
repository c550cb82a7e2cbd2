"""NVML's sample buffers: rings of recent samples that the driver fills between scrapes."""

import struct
from collections.abc import Sequence
from dataclasses import dataclass

from otel_zernel_libraries.training import semconv
from otel_zernel_receivers.nvml.driver.library import Handle, Nvml
from otel_zernel_receivers.nvml.points import attributes as a
from otel_zernel_receivers.nvml.points.series import MHZ, MILLI, PERCENT, NvmlSeries, series

POWER = 0
"""NVML_TOTAL_POWER_SAMPLES, in mW."""

_UTILIZATION = semconv.GPU_UTILIZATION_DISTRIBUTION
SAMPLED_SERIES: dict[int, NvmlSeries] = {
    POWER: series(semconv.GPU_POWER_DISTRIBUTION, MILLI),
    1: series(_UTILIZATION, PERCENT, {a.TASK: "general"}),
    2: series(semconv.GPU_MEMORY_BANDWIDTH_UTILIZATION_DISTRIBUTION, PERCENT),
    3: series(_UTILIZATION, PERCENT, {a.TASK: "encoder"}),
    4: series(_UTILIZATION, PERCENT, {a.TASK: "decoder"}),
    5: series(semconv.GPU_CLOCK_DISTRIBUTION, MHZ, {semconv.GPU_CLOCK_DOMAIN: "sm"}),
    6: series(semconv.GPU_CLOCK_DISTRIBUTION, MHZ, {semconv.GPU_CLOCK_DOMAIN: "memory"}),
    8: series(_UTILIZATION, PERCENT, {a.TASK: "jpeg"}),
    9: series(_UTILIZATION, PERCENT, {a.TASK: "ofa"}),
}
"""By nvmlSamplingType_t."""

_SAMPLES = {
    type_: struct.Struct(f"<Q{code}{8 - struct.calcsize(code)}x")
    for type_, code in enumerate(("d", "I", "Q", "Q", "q", "i", "H"))
}
"""nvmlSample_t by NVML_VALUE_TYPE_…: time and value."""

NvmlSample = tuple[int, float]
"""Time in us since 1970, and a number in the driver's unit."""


def after_clock_reset(last_us: int, now_us: int) -> int:
    """The time after which samples are new: `last_us`, or now if the host's clock was set back by more than 1 s.

    Without this, all samples would count as old until the clock reaches `last_us` again.
    """
    return last_us if last_us <= now_us + 1_000_000 else now_us


@dataclass(slots=True)
class SampleRing:
    """The read position in one of the driver's buffers.

    It stays valid when the driver is reloaded, because samples have the time of the host's clock.
    """

    kind: int
    """nvmlSamplingType_t."""
    last_us: int = 0
    """The time of the newest sample that was read, so that each sample counts once."""
    span: float = 0.0
    """Seconds from the oldest to the newest sample in the buffer, as far as known; 0 for unknown."""
    read_at: float = float("-inf")
    """When the buffer was last read, by the monotonic clock."""
    overwritten: int = 0
    """The estimated number of samples that the driver overwrote before they were read. The reader resets it to 0."""

    def read(self, nvml: Nvml, device: Handle, now_us: int) -> list[NvmlSample]:
        """The samples since the last read, oldest first. Raises `NVMLError`."""
        self.last_us = after_clock_reset(self.last_us, now_us)
        try:
            type_, answer = nvml.nvmlDeviceGetSamples(device, self.kind, self.last_us)
        except nvml.NVMLError as error:
            if error.value == nvml.NVML_ERROR_NOT_FOUND:  # there are no new samples
                return []
            raise
        return self._new_samples(_unpack(answer, type_))

    def _new_samples(self, samples: Sequence[NvmlSample]) -> list[NvmlSample]:
        new = sorted(sample for sample in samples if sample[0] > self.last_us)
        if not new:
            return []
        span = new[-1][0] - new[0][0]
        # If the whole buffer is new, samples may have been overwritten.
        if self.last_us and span >= 0.95e6 * self.span and len(new) > 1:
            self._count_overwritten(new[0][0] - self.last_us, span / (len(new) - 1))
        self.span = max(self.span, span / 1e6)
        self.last_us = new[-1][0]
        return new

    def _count_overwritten(self, gap_us: float, spacing_us: float) -> None:
        if gap_us > 2 * spacing_us:
            self.overwritten += round(gap_us / spacing_us) - 1


def _unpack(answer: Sequence[object], type_: int) -> list[NvmlSample]:
    """The samples in pynvml's list, whose items lie next to each other in one ctypes array."""
    if not answer:
        return []
    layout = _SAMPLES[type_]
    array = bytes(answer[0]._b_base_)  # type: ignore[attr-defined]  # one copy in place of three calls per sample
    return list(layout.iter_unpack(array[: len(answer) * layout.size]))
