"""The declaration of metrics. A component lists all its metrics in a module `declared`.

The page of metrics is made of these lists, and tests compare them with the metrics that the code emits.
"""

from dataclasses import dataclass
from typing import Literal


@dataclass(frozen=True, slots=True)
class DeclaredMetric:
    """One metric that a component emits into its pipelines, or about itself.

    A module `declared` has them in `METRICS`, by their names.
    """

    name: str
    unit: str
    kind: Literal["gauge", "sum", "up_down", "histogram", "any"]
    description: str
    """One sentence."""
    attributes: tuple[str, ...] = ()
    """The attributes of its points, besides those that all points of the component have."""
    when: str = "always"
    """When it appears."""
    own: bool = False
    """Whether it is about the collector itself, with its other own metrics on :8888."""

    @property
    def counter(self) -> tuple[str, str, str]:
        """The arguments of `Meter.create_counter`."""
        return self.name, self.unit, self.description


def own(
    name: str, unit: str, description: str, attributes: tuple[str, ...] = (), when: str = "from the first one on"
) -> DeclaredMetric:
    """A counter of a component about itself."""
    return DeclaredMetric(name, unit, "sum", description, attributes, when, own=True)


def by_name(*metrics: DeclaredMetric) -> dict[str, DeclaredMetric]:
    """The metrics by their names."""
    return {metric.name: metric for metric in metrics}
