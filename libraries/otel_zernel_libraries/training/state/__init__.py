"""The state of all trainings whose batches arrive. No I/O.

`why`, `live` and `websocket` keep one each, feed it with batches, and render or judge what it has.
"""

from otel_zernel_libraries.training.state.gpus import SeenGpu as SeenGpu
from otel_zernel_libraries.training.state.jobs import SeenJob as SeenJob
from otel_zernel_libraries.training.state.latencies import COLLECTIVES as COLLECTIVES
from otel_zernel_libraries.training.state.latencies import LAUNCHES as LAUNCHES
from otel_zernel_libraries.training.state.latencies import WAITS as WAITS
from otel_zernel_libraries.training.state.latencies import Latencies as Latencies
from otel_zernel_libraries.training.state.memory import MEMORY_READERS as MEMORY_READERS
from otel_zernel_libraries.training.state.memory import SeenMemory as SeenMemory
from otel_zernel_libraries.training.state.processes import DETAIL_READERS as DETAIL_READERS
from otel_zernel_libraries.training.state.processes import MOMENT_READERS as MOMENT_READERS
from otel_zernel_libraries.training.state.processes import PASSES as PASSES
from otel_zernel_libraries.training.state.processes import ProcessIncrease as ProcessIncrease
from otel_zernel_libraries.training.state.processes import SeenProcess as SeenProcess
from otel_zernel_libraries.training.state.processes import SeriesSums as SeriesSums
from otel_zernel_libraries.training.state.processes import known_sources as known_sources
from otel_zernel_libraries.training.state.step_bars import StepBars as StepBars
from otel_zernel_libraries.training.state.step_bars import merged as merged
from otel_zernel_libraries.training.state.step_rows import Row as Row
from otel_zernel_libraries.training.state.step_rows import StepRows as StepRows
from otel_zernel_libraries.training.state.step_times import StepTimes as StepTimes
from otel_zernel_libraries.training.state.tables import Entities as Entities
from otel_zernel_libraries.training.state.training_state import TrainingState as TrainingState
