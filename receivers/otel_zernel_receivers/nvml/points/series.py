"""A series of an NVML metric: its name, its attributes and its unit."""

from collections.abc import Mapping
from typing import NamedTuple

from otel_zernel.otlp.points import AttributeValue

PERCENT, MHZ, MILLI = 0.01, 1e6, 1e-3


class NvmlSeries(NamedTuple):
    """A metric's name and the attributes of its points, without those that every point has."""

    metric: str
    attributes: tuple[tuple[str, AttributeValue], ...] = ()
    scale: float = 1.0
    """The driver's numbers are multiplied by this."""

    def scaled(self, number: float) -> float:
        """The driver's number in the metric's unit. A scale below 1 divides: 57 % is 0.57, not 0.5700000000000001."""
        return number / round(1 / self.scale) if self.scale < 1 else number * self.scale


def series(metric: str, scale: float = 1.0, attributes: Mapping[str, AttributeValue] | None = None) -> NvmlSeries:
    """A series whose values are multiplied by `scale`."""
    return NvmlSeries(metric, tuple((attributes or {}).items()), scale)
