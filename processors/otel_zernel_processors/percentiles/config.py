"""The configuration of the percentiles processor."""

from typing import Annotated, Literal

from pydantic import Field, model_validator

from otel_zernel.component import ComponentConfig
from otel_zernel.otlp.histograms import LARGEST
from otel_zernel.otlp.resolution import UNITS, default_range
from otel_zernel.types import PositiveDuration, Ratio


class PercentilesConfig(ComponentConfig):
    """The metrics to process, the window, and the precision of the counts."""

    metrics: tuple[str, ...] = ("*",)
    """Names of the metrics to process, as globs: gauges, sums and histograms. Summaries pass through."""
    group_by: tuple[str, ...] | None = None
    """The attributes to keep, of points and resources; null keeps all. Series that differ only in others are merged."""
    quantiles: tuple[Ratio, ...] = (0.5, 0.9, 0.99, 0.999)
    """The quantiles to emit. 0 (minimum) and 1 (maximum) are always added."""
    significant_figures: Annotated[int, Field(ge=1, le=5)] = 3
    """Decimal digits that are counted. Values that differ only in later digits count as equal."""
    resolution: Annotated[float, Field(gt=0)] | None = None
    """The smallest difference that is counted, in the metric's unit. Default: 1e-9 for s, 1 for By, else 1e-6."""
    max_value: Annotated[float, Field(gt=0)] | None = None
    """The largest value in the metric's unit. Larger values count as it; default 3600 for s, 2^60 for By, else 1e12."""
    window: PositiveDuration | Literal["since_start"] = 60.0
    """Seconds that the quantiles cover, rounded up to whole intervals; or `since_start`."""
    interval: PositiveDuration = 10.0
    """Seconds between outputs."""
    exponential_histogram: bool = False
    """Whether to emit a cumulative exponential histogram too, with the exemplars of the counted histograms."""
    pass_through: bool = False
    """Whether to pass the processed metrics on. The summaries then have the suffix `.percentiles`."""
    max_series: Annotated[int, Field(ge=1)] = 10_000
    """The maximum number of series. Values of further series are dropped and counted."""
    idle_timeout: PositiveDuration = 300.0
    """Seconds without a value after which a series ends."""

    @model_validator(mode="after")
    def _fits(self) -> "PercentilesConfig":
        if self.window != "since_start" and self.window < self.interval:
            raise ValueError(
                f"the window ({self.window:g} s) must not be shorter than the interval ({self.interval:g} s)"
            )
        for unit in UNITS:
            resolution, max_value = self.range_of(unit)
            if not 2 <= max_value / resolution <= LARGEST:
                raise ValueError(
                    f"max_value ({max_value:g}) must be 2 to {LARGEST:.3g} times the resolution ({resolution:g})"
                    f" for the unit {unit}"
                )
        return self

    def range_of(self, unit: str) -> tuple[float, float]:
        """The resolution and the largest value for a metric of this unit."""
        resolution, max_value = default_range(unit)
        return self.resolution or resolution, self.max_value or max_value
