"""Resources, scopes and series: the rows that the store keeps once."""

from dataclasses import dataclass
from typing import Literal

SeriesType = Literal["gauge", "sum", "histogram", "exponential_histogram", "summary"]


@dataclass(slots=True, eq=False)
class StoredResource:
    """A resource with its schema URL. `id` is None until the store knows it."""

    fingerprint: bytes
    attributes: str
    """JSON, as all `attributes` here."""
    schema_url: str
    encoded: bytes
    """The exact `ResourceMetrics` message of OTLP, without metrics."""
    id: int | None = None


@dataclass(slots=True, eq=False)
class StoredScope:
    """An instrumentation scope with its schema URL."""

    fingerprint: bytes
    name: str
    version: str
    attributes: str
    schema_url: str
    encoded: bytes
    """The exact `ScopeMetrics` message, without metrics."""
    id: int | None = None


@dataclass(slots=True, frozen=True)
class SeriesDetails:
    """The description of a series."""

    resource: StoredResource
    scope: StoredScope
    metric: str
    description: str
    """Not part of the identity: that of the first batch stays."""
    unit: str
    type: SeriesType
    temporality: int | None
    """The number of OTLP's enumeration; None for gauges and summaries."""
    monotonic: bool | None
    """For sums only."""
    attributes: str
    encoded: bytes
    """The exact `Metric` message, with one point that has only the attributes of the series."""


@dataclass(slots=True, eq=False)
class StoredSeries:
    """One series. The details are needed only until the store has given it an id."""

    fingerprint: bytes
    details: SeriesDetails | None
    id: int | None = None

    def __repr__(self) -> str:
        return f"<series {self.id or self.fingerprint.hex()}>"
