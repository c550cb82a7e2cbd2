"""The critical path of a step: the rank for which the others waited, and its phases.

The ranks of a job leave the last collective of a step together. So a step of the job lasts from one meeting to the
next, and all ranks but the last one to arrive wait in between. The path runs through the rank that waits least. That
includes the load of the step's batch, which the process itself counts as the end of the step before.
"""

from collections.abc import Mapping

from otel_zernel_libraries.training.step_spans import CriticalPath
from otel_zernel_processors.phases.alignment.rank_step import COLLECTIVE, RankStep


def critical_path(steps: Mapping[int, RankStep]) -> CriticalPath | None:
    """The critical path of a step, whose part of each rank this is. None if the phases of a rank are not known from
    meeting to meeting."""
    if not steps or not all(step.path for step in steps.values()):
        return None
    last = min(sorted(steps), key=lambda rank: steps[rank].path.get(COLLECTIVE, 0))
    return CriticalPath(last, {phase: spent for phase, spent in steps[last].path.items() if spent})
