"""Reads a training from the batches of `phases`, `ebpf`, `nvml` and `csv`: phases, steps, jobs and GPUs."""

from otel_zernel_libraries.training.cpu_takers import CpuTaker, TakerKind
from otel_zernel_libraries.training.distributions import distribution_of
from otel_zernel_libraries.training.names import HARMLESS_THROTTLING, PHASES, TRAINED, best_source, launcher_of
from otel_zernel_libraries.training.points import SeenValue, numbers_of, scalars_of
from otel_zernel_libraries.training.programs import script_of, title_of
from otel_zernel_libraries.training.steps import (
    BarSegment,
    Durations,
    StepBar,
    bar_of,
    joined_durations,
)
from otel_zernel_libraries.training.verdicts import ESSENTIAL_MARKS, FEWEST_STEPS, PHASE_OF
from otel_zernel_libraries.training.words import (
    ACTIVITY_WORDS,
    DELAYS,
    PHASE_WORDS,
    POSITION_WORDS,
    THROTTLE_NAMES,
    VERDICT_WORDS,
    activity_words,
    cause_name,
    cause_sentence,
    detail_name,
    mark_names,
    moment_name,
    phase_name,
    phases_css,
    position_name,
    throttle_name,
    verdict_words,
)

__all__ = [
    "ACTIVITY_WORDS",
    "DELAYS",
    "ESSENTIAL_MARKS",
    "FEWEST_STEPS",
    "HARMLESS_THROTTLING",
    "PHASES",
    "PHASE_OF",
    "PHASE_WORDS",
    "POSITION_WORDS",
    "THROTTLE_NAMES",
    "TRAINED",
    "VERDICT_WORDS",
    "BarSegment",
    "CpuTaker",
    "Durations",
    "SeenValue",
    "StepBar",
    "TakerKind",
    "activity_words",
    "bar_of",
    "best_source",
    "cause_name",
    "cause_sentence",
    "detail_name",
    "distribution_of",
    "joined_durations",
    "launcher_of",
    "mark_names",
    "moment_name",
    "numbers_of",
    "phase_name",
    "phases_css",
    "position_name",
    "scalars_of",
    "script_of",
    "throttle_name",
    "title_of",
    "verdict_words",
]
