"""The state of ranks, GPUs and jobs, kept from the batches of a pipeline. No I/O."""

from otel_zernel_exporters.live.state.columns import BOUNDS, HEAT_LENGTH, SHARES_LENGTH
from otel_zernel_exporters.live.state.intake import TrainingState
from otel_zernel_exporters.live.state.timeline import Row

__all__ = ["BOUNDS", "HEAT_LENGTH", "SHARES_LENGTH", "Row", "TrainingState"]
