"""The energy of boards that have no energy counter."""

from collections.abc import Iterable
from dataclasses import dataclass

from otel_zernel_receivers.nvml.readings.samples import NvmlSample


@dataclass(slots=True)
class PowerIntegral:
    """Power integrated over time, with the trapezoidal rule."""

    joules: float = 0.0
    last: NvmlSample | None = None

    def add(self, samples: Iterable[NvmlSample]) -> None:
        """Adds samples in us and mW, in order of time."""
        for time, milliwatts in samples:
            if self.last is not None and time > self.last[0]:
                self.joules += (time - self.last[0]) * (milliwatts + self.last[1]) / 2e9
            self.last = time, milliwatts
