"""Everything that the components have reported while the command watched, added up by process, job and GPU."""

from otel_zernel_commands.why.seen.gpus import SeenGpu
from otel_zernel_commands.why.seen.intake import Sightings
from otel_zernel_commands.why.seen.processes import SeenJob, SeenProcess
from otel_zernel_commands.why.seen.step_bars import StepBars, merged
from otel_zernel_commands.why.seen.step_times import StepTimes
from otel_zernel_libraries.training import PHASES, BarSegment, StepBar

__all__ = [
    "PHASES",
    "BarSegment",
    "SeenGpu",
    "SeenJob",
    "SeenProcess",
    "Sightings",
    "StepBar",
    "StepBars",
    "StepTimes",
    "merged",
]
