"""NVML's sample buffers: rings that the driver fills between our looks."""

import struct
from collections.abc import Sequence
from dataclasses import dataclass

from otel_zernel_receivers.nvml.driver.library import Handle, Nvml
from otel_zernel_receivers.nvml.points import metrics as m
from otel_zernel_receivers.nvml.points.series import MHZ, MILLI, PERCENT, Stream, stream

POWER = 0
"""NVML_TOTAL_POWER_SAMPLES, in mW."""

_UTILIZATION = "zernel.gpu.utilization.distribution"
STREAMS: dict[int, Stream] = {
    POWER: stream("zernel.gpu.power.distribution", MILLI),
    1: stream(_UTILIZATION, PERCENT, {m.TASK: "general"}),
    2: stream("zernel.gpu.memory.bandwidth.utilization.distribution", PERCENT),
    3: stream(_UTILIZATION, PERCENT, {m.TASK: "encoder"}),
    4: stream(_UTILIZATION, PERCENT, {m.TASK: "decoder"}),
    5: stream("zernel.gpu.clock.distribution", MHZ, {m.DOMAIN: "sm"}),
    6: stream("zernel.gpu.clock.distribution", MHZ, {m.DOMAIN: "memory"}),
    8: stream(_UTILIZATION, PERCENT, {m.TASK: "jpeg"}),
    9: stream(_UTILIZATION, PERCENT, {m.TASK: "ofa"}),
}
"""By nvmlSamplingType_t."""

PER_UNIT = 1e6
"""What the percentiles processor tells apart by default, for ratios, W and Hz."""
_SAMPLES = {
    kind: struct.Struct(f"<Q{code}{8 - struct.calcsize(code)}x")
    for kind, code in enumerate(("d", "I", "Q", "Q", "q", "i", "H"))
}
"""nvmlSample_t by NVML_VALUE_TYPE_…: time and value."""

Sample = tuple[int, float]
"""Time in us, and a number in the driver's unit."""


def not_ahead(last_us: int, now_us: int) -> int:
    """The time of the newest sample, or now if the host's clock was set back by more than a second: without that,
    nothing would be new until the clock gets there again."""
    return last_us if last_us <= now_us + 1_000_000 else now_us


@dataclass(slots=True)
class Ring:
    """One of the driver's buffers. Keeps its place over drivers' reloads: times are those of the host's clock."""

    kind: int
    last_us: int = 0
    """The time of the newest sample seen. Every sample counts once."""
    span: float = 0.0
    """Seconds that the buffer holds, as far as known; 0 for unknown."""
    missed: int = 0
    """Samples that were overwritten before anybody looked, since `missed` was last set to 0."""

    def read(self, nvml: Nvml, device: Handle, now_us: int) -> list[Sample]:
        """The samples since the last look, oldest first. Raises `NVMLError`."""
        self.last_us = not_ahead(self.last_us, now_us)
        try:
            kind, answer = nvml.nvmlDeviceGetSamples(device, self.kind, self.last_us)
        except nvml.NVMLError as error:
            if error.value == nvml.NVML_ERROR_NOT_FOUND:  # nothing new
                return []
            raise
        return self._new(_samples(answer, kind))

    def _new(self, samples: Sequence[Sample]) -> list[Sample]:
        fresh = sorted(sample for sample in samples if sample[0] > self.last_us)
        if not fresh:
            return []
        span = fresh[-1][0] - fresh[0][0]
        if self.last_us and span >= 0.95e6 * self.span and len(fresh) > 1:  # all new: the buffer may have gone round
            self._count_missed(fresh[0][0] - self.last_us, span / (len(fresh) - 1))
        self.span = max(self.span, span / 1e6)
        self.last_us = fresh[-1][0]
        return fresh

    def _count_missed(self, silence_us: float, spacing_us: float) -> None:
        if silence_us > 2 * spacing_us:
            self.missed += round(silence_us / spacing_us) - 1


def _samples(answer: Sequence[object], kind: int) -> list[Sample]:
    """The samples of pynvml's list, whose items lie side by side in one ctypes array."""
    if not answer:
        return []
    layout = _SAMPLES[kind]
    array = bytes(answer[0]._b_base_)  # type: ignore[attr-defined]  # one copy in place of three calls a sample
    return list(layout.iter_unpack(array[: len(answer) * layout.size]))
