"""The configuration of the debug exporter."""

from typing import Annotated, Literal

from pydantic import Field

from otel_zernel.component import ComponentConfig

Verbosity = Literal["basic", "normal", "detailed"]


class DebugConfig(ComponentConfig):
    """What to show; names and defaults as in the OpenTelemetry Collector, which has neither `metrics` nor `output`."""

    verbosity: Verbosity = "basic"
    """`basic`: counts, a line a batch. `normal`: a line a series, to be read. `detailed`: everything."""
    metrics: tuple[str, ...] = ("*",)
    """Names of the metrics to show, as globs."""
    sampling_initial: Annotated[int, Field(ge=0)] = 2
    """Batches shown in every second, before the rest of the second is sampled."""
    sampling_thereafter: Annotated[int, Field(ge=0)] = 1
    """Of the rest every n-th is shown: 1 for all, 0 for none."""
    output: Literal["stdout", "stderr"] = "stdout"
    """Where to write; logs go to stderr."""
