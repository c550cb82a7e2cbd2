"""Reads a training from the batches of `phases`, `ebpf`, `nvml` and `csv`: phases, steps, jobs and GPUs."""

from otel_zernel.training.distributions import distribution_of
from otel_zernel.training.names import HARMLESS_THROTTLING, PHASES, TRAINED, best_source, launcher_of
from otel_zernel.training.points import SeenValue, numbers_of, scalars_of
from otel_zernel.training.steps import BarSegment, StepBar, bar_of

__all__ = [
    "HARMLESS_THROTTLING",
    "PHASES",
    "TRAINED",
    "BarSegment",
    "SeenValue",
    "StepBar",
    "bar_of",
    "best_source",
    "distribution_of",
    "launcher_of",
    "numbers_of",
    "scalars_of",
]
