"""Energy of boards that have no counter for it."""

from collections.abc import Iterable
from dataclasses import dataclass

from otel_zernel_receivers.nvml.readings.samples import Sample


@dataclass(slots=True)
class Integral:
    """Power summed up over time, by trapezoids from sample to sample."""

    joules: float = 0.0
    last: Sample | None = None

    def add(self, samples: Iterable[Sample]) -> None:
        """Takes samples in us and mW, in order."""
        for time, milliwatts in samples:
            if self.last is not None and time > self.last[0]:
                self.joules += (time - self.last[0]) * (milliwatts + self.last[1]) / 2e9
            self.last = time, milliwatts
