"""The configuration of the percentiles processor."""

from typing import Annotated, Literal, Self

from pydantic import Field, field_validator, model_validator

from otel_zernel.component import ComponentConfig
from otel_zernel.types import PositiveDuration, Ratio
from otel_zernel_libraries.histograms.resolution import LARGEST, UNITS, default_range

Output = Literal["histogram", "summary"]
_DEFAULT_QUANTILES = (0.5, 0.9, 0.99, 0.999)


class PercentilesConfig(ComponentConfig):
    """The metrics to process, the outputs, the window, and the precision of the counts."""

    metrics: tuple[str, ...] = ("*",)
    """Names of the metrics to process, as globs: gauges, sums and histograms. Summaries pass through."""
    group_by: tuple[str, ...] | None = None
    """The attributes to keep, of points and resources; null keeps all. Series that differ only in others are merged."""
    outputs: Annotated[tuple[Output, ...], Field(min_length=1)] = ("histogram",)
    """`histogram`: cumulative exponential histograms, which a gateway or a backend can merge. `summary`: quantiles."""
    suffix: str | None = None
    """Follows the names of the outputs. By default `.distribution` for histograms and `.percentiles` for summaries; a
    histogram of a metric that is a histogram keeps its name."""
    quantiles: tuple[Ratio, ...] = _DEFAULT_QUANTILES
    """The quantiles of summaries."""
    extremes: bool = True
    """Whether summaries also have the quantiles 0 (minimum) and 1 (maximum)."""
    significant_figures: Annotated[int, Field(ge=1, le=5)] = 3
    """Decimal digits that are counted. Values that differ only in later digits count as equal."""
    resolution: Annotated[float, Field(gt=0)] | None = None
    """The smallest difference that is counted, in the metric's unit. Default: 1e-9 for s, 1 for By, else 1e-6."""
    max_value: Annotated[float, Field(gt=0)] | None = None
    """The largest value in the metric's unit. Larger values count as it; default 3600 for s, 2^60 for By, else 1e12."""
    window: PositiveDuration | Literal["since_start"] = 60.0
    """Seconds that the quantiles of summaries cover, rounded up to whole intervals; or `since_start`."""
    interval: PositiveDuration = 10.0
    """Seconds between outputs."""
    pass_through: bool = False
    """Whether to pass the processed metrics on, too. Histograms of histograms are then named `.distribution`."""
    max_series: Annotated[int, Field(ge=1)] = 10_000
    """The maximum number of series. Values of further series are dropped and counted."""
    idle_timeout: PositiveDuration = 300.0
    """Seconds without a value after which a series ends."""

    @field_validator("outputs")
    @classmethod
    def _outputs_differ(cls, outputs: tuple[Output, ...]) -> tuple[Output, ...]:
        if len(set(outputs)) < len(outputs):
            raise ValueError(f"an output is listed twice: {', '.join(outputs)}; list each once")
        return outputs

    @model_validator(mode="after")
    def _names_differ(self) -> Self:
        if self.suffix is not None and len(self.outputs) > 1:
            raise ValueError(
                f"the suffix {self.suffix!r} would give the histogram and the summary one name; remove the suffix, or"
                " choose one of the outputs"
            )
        if self.suffix == "" and self.pass_through:
            raise ValueError(
                'with suffix "" and pass_through, an output would have the name of its input; choose another suffix'
            )
        return self

    @model_validator(mode="after")
    def _quantiles_are_used(self) -> Self:
        if "summary" not in self.outputs and self.quantiles != _DEFAULT_QUANTILES:
            raise ValueError("quantiles: only summaries have quantiles; add summary to outputs, or remove quantiles")
        return self

    @model_validator(mode="after")
    def _fits(self) -> Self:
        if "summary" in self.outputs and self.window != "since_start" and self.window < self.interval:
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

    def name_of(self, output: Output, metric: str, *, is_histogram: bool) -> str:
        """The name of an output for a metric. `is_histogram` if the metric itself is a histogram."""
        if self.suffix is not None:
            return metric + self.suffix
        if output == "summary":
            return f"{metric}.percentiles"
        return metric if is_histogram and not self.pass_through else f"{metric}.distribution"

    def range_of(self, unit: str) -> tuple[float, float]:
        """The resolution and the largest value for a metric of this unit."""
        resolution, max_value = default_range(unit)
        return self.resolution or resolution, self.max_value or max_value
