"""Reads a training from the batches of `phases`, `ebpf`, `nvml` and `csv`: phases, steps, jobs and GPUs."""

from otel_zernel_libraries.training.distributions import distribution_of
from otel_zernel_libraries.training.names import HARMLESS_THROTTLING, PHASES, TRAINED, best_source, launcher_of
from otel_zernel_libraries.training.points import SeenValue, numbers_of, scalars_of
from otel_zernel_libraries.training.programs import PROGRAM, script_of, title_of
from otel_zernel_libraries.training.ranks import NOT_COMPARED, JobVerdict, RankTime, compare_ranks
from otel_zernel_libraries.training.steps import (
    MERGED_STEPS,
    BarSegment,
    Durations,
    StepBar,
    bar_of,
    durations_attribute,
    joined_durations,
)
from otel_zernel_libraries.training.verdicts import ESSENTIAL_MARKS, FEWEST_STEPS, verdict_of_shares

__all__ = [
    "ESSENTIAL_MARKS",
    "FEWEST_STEPS",
    "HARMLESS_THROTTLING",
    "MERGED_STEPS",
    "NOT_COMPARED",
    "PHASES",
    "PROGRAM",
    "TRAINED",
    "BarSegment",
    "Durations",
    "JobVerdict",
    "RankTime",
    "SeenValue",
    "StepBar",
    "bar_of",
    "best_source",
    "compare_ranks",
    "distribution_of",
    "durations_attribute",
    "joined_durations",
    "launcher_of",
    "numbers_of",
    "scalars_of",
    "script_of",
    "title_of",
    "verdict_of_shares",
]
