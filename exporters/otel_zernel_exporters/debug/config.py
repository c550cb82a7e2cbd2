"""The configuration of the debug exporter."""

from typing import Annotated, Literal

from pydantic import Field

from otel_zernel.component import ComponentConfig

Verbosity = Literal["basic", "normal", "detailed", "jobs"]


class DebugConfig(ComponentConfig):
    """What to print. The OpenTelemetry Collector has the same options except `metrics`, `output` and `jobs`."""

    verbosity: Verbosity = "basic"
    """`basic`: one line of counts for each batch. `normal`: one line for each series, span and log record.
    `detailed`: every field. `jobs`: one line for each answer of `phases` on a job, in the words of `why`."""
    metrics: tuple[str, ...] = ("*",)
    """Names of the metrics to print, as globs."""
    sampling_initial: Annotated[int, Field(ge=0)] = 2
    """Batches printed in every second before sampling begins."""
    sampling_thereafter: Annotated[int, Field(ge=0)] = 1
    """Print every n-th of the remaining batches of a second: 1 for all, 0 for none."""
    output: Literal["stdout", "stderr"] = "stdout"
    """Where to print. The collector's log goes to stderr."""
