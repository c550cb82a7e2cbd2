"""The configuration of the percentiles processor."""

from typing import Annotated, Literal

from pydantic import Field, model_validator

from otel_zernel.component import ComponentConfig
from otel_zernel.otlp.histograms import LARGEST
from otel_zernel.otlp.resolution import UNITS, default_range
from otel_zernel.types import PositiveDuration, Ratio


class PercentilesConfig(ComponentConfig):
    """What to take percentiles of, over which time, and how finely to count."""

    metrics: tuple[str, ...] = ("*",)
    """Names of the metrics to take, as globs. Gauges, sums and histograms are taken; summaries pass through."""
    group_by: tuple[str, ...] | None = None
    """The attributes to keep, of points and resources; values that differ in others only are counted together. By
    default all are kept."""
    quantiles: tuple[Ratio, ...] = (0.5, 0.9, 0.99, 0.999)
    """The quantiles to output, besides 0 and 1, the smallest and the largest value."""
    significant_figures: Annotated[int, Field(ge=1, le=5)] = 3
    """Decimal digits in which two values must differ to be told apart."""
    resolution: Annotated[float, Field(gt=0)] | None = None
    """The smallest difference that counts, in the metric's unit. By default 1e-9 for s, 1 for By, else 1e-6."""
    max_value: Annotated[float, Field(gt=0)] | None = None
    """The largest value, in the metric's unit; what is larger counts as this. By default 3600 for s, 2^60 for By, else
    1e12."""
    window: PositiveDuration | Literal["since_start"] = 60.0
    """How long a value counts towards the quantiles, in steps of the interval."""
    interval: PositiveDuration = 10.0
    """Seconds between outputs."""
    exponential_histogram: bool = False
    """Whether to output a cumulative exponential histogram, too, with the exemplars of the histograms counted."""
    pass_through: bool = False
    """Whether the metrics taken go on as well; the percentiles are then named with `.percentiles` behind."""
    max_series: Annotated[int, Field(ge=1)] = 10_000
    """How many series to keep at most; values of more are dropped and counted."""
    idle_timeout: PositiveDuration = 300.0
    """Seconds without a value after which a series is forgotten."""

    @model_validator(mode="after")
    def _fits(self) -> "PercentilesConfig":
        if self.window != "since_start" and self.window < self.interval:
            raise ValueError("the window must be at least as long as the interval")
        for unit in UNITS:
            resolution, max_value = self.range_of(unit)
            if not 2 <= max_value / resolution <= LARGEST:
                raise ValueError(
                    f"for the unit {unit}, max_value {max_value:g} must be 2 to {LARGEST:.3g} times the resolution"
                    f" {resolution:g}"
                )
        return self

    def range_of(self, unit: str) -> tuple[float, float]:
        """The resolution and the largest value for a metric of this unit."""
        resolution, max_value = default_range(unit)
        return self.resolution or resolution, self.max_value or max_value
