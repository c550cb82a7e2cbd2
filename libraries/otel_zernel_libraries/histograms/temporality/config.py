"""The configuration of a conversion."""

from typing import Annotated, Literal

from pydantic import Field

from otel_zernel.types import PositiveDuration, Section

Temporality = Literal["cumulative", "delta", "as_is"]
"""The temporality of the result. `as_is` converts nothing."""


class SeriesMemoryConfig(Section):
    """How many series a conversion remembers, and for how long."""

    max_series: Annotated[int, Field(ge=1)] = 100_000
    """The maximum number of converted series. Points of further series are dropped and counted."""
    idle_timeout: PositiveDuration = 3600.0
    """Seconds without a point after which a series is forgotten. If it returns, it starts again at zero."""


MovingBounds = Literal["exponential", "fixed", "as_is"]
"""The form of histograms whose bounds differ from point to point: exponential histograms, the fixed bounds of the
metric's unit, or the bounds as they are, which few backends add up rightly."""
