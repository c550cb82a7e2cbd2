"""The state of all trainings whose batches arrive. No I/O.

`why`, `live` and `websocket` keep one each, feed it with batches, and render or judge what it has.
"""

from otel_zernel_libraries.training.state.gpus import SeenGpu
from otel_zernel_libraries.training.state.jobs import SeenJob
from otel_zernel_libraries.training.state.latencies import COLLECTIVES, LAUNCHES, WAITS, Latencies
from otel_zernel_libraries.training.state.memory import MEMORY_READERS, SeenMemory
from otel_zernel_libraries.training.state.processes import (
    DETAIL_READERS,
    MOMENT_READERS,
    PASSES,
    ProcessIncrease,
    SeenProcess,
    SeriesSums,
    known_sources,
)
from otel_zernel_libraries.training.state.step_bars import StepBars, merged
from otel_zernel_libraries.training.state.step_rows import Row, StepRows
from otel_zernel_libraries.training.state.step_times import StepTimes
from otel_zernel_libraries.training.state.tables import Entities
from otel_zernel_libraries.training.state.training_state import TrainingState

__all__ = [
    "COLLECTIVES",
    "DETAIL_READERS",
    "LAUNCHES",
    "MEMORY_READERS",
    "MOMENT_READERS",
    "PASSES",
    "WAITS",
    "Entities",
    "Latencies",
    "ProcessIncrease",
    "Row",
    "SeenGpu",
    "SeenJob",
    "SeenMemory",
    "SeenProcess",
    "SeriesSums",
    "StepBars",
    "StepRows",
    "StepTimes",
    "TrainingState",
    "known_sources",
    "merged",
]
