"""The series that NVML's answers become."""

from collections.abc import Mapping
from typing import NamedTuple

from otel_zernel.otlp.points import AttributeValue

PERCENT, MHZ, MILLI = 0.01, 1e6, 1e-3


class Stream(NamedTuple):
    """A series of a metric: its name and the attributes that tell it from its siblings."""

    metric: str
    attributes: tuple[tuple[str, AttributeValue], ...] = ()
    scale: float = 1.0
    """What the driver's numbers are multiplied by."""

    def scaled(self, number: float) -> float:
        """The driver's number in the metric's unit. 57 % is 0.57, not 0.5700000000000001."""
        return number / round(1 / self.scale) if self.scale < 1 else number * self.scale


def stream(metric: str, scale: float = 1.0, attributes: Mapping[str, AttributeValue] | None = None) -> Stream:
    """A stream whose values are multiplied by `scale`."""
    return Stream(metric, tuple((attributes or {}).items()), scale)
