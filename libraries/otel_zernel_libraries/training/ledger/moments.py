"""The position and the activity of a moment, and the phase that both give.

The values are the identifiers in metrics, spans and `why --json`. docs/phases.md has the same tables.
"""

from dataclasses import dataclass
from enum import StrEnum
from typing import Final


class Position(StrEnum):
    """Where in its loop a training thread is (`zernel.position`)."""

    LOAD = "load"
    FORWARD = "forward"
    BACKWARD = "backward"
    CLIP = "clip"
    """From the last pass of a step to its last work, outside the optimizer: gradient clipping, loss scaling."""
    OPTIMIZER = "optimizer"
    ZERO_GRAD = "zero_grad"
    AVERAGE = "average"
    """Updates of other weights after the optimizer, for example of an average of them."""
    AFTER_STEP = "after_step"
    """After the last work of a step: logging, metrics, callbacks."""
    EVALUATION = "evaluation"
    INFERENCE = "inference"
    ENVIRONMENT = "environment"
    """An environment of reinforcement learning between two passes."""
    CHECKPOINT = "checkpoint"
    COMPILE = "compile"
    BETWEEN = "between"
    """Between two loops."""
    UNKNOWN = "unknown"


class Activity(StrEnum):
    """What a training thread does (`zernel.activity`)."""

    OPERATOR = "operator"
    PYTHON = "python"
    NATIVE = "native"
    """It runs another library."""
    CPU_WAIT = "cpu_wait"
    """It could run, and another thread has the CPU."""
    THROTTLED = "throttled"
    """Its cgroup has used up its quota of CPU time."""
    GIL = "gil"
    FILE = "file"
    SOCKET = "socket"
    PIPE = "pipe"
    LOCK = "lock"
    CHILD = "child"
    """It waits for the end of a child process."""
    TIMER = "timer"
    FAULT = "fault"
    SWAP = "swap"
    GPU_WAIT = "gpu_wait"
    LAUNCH_BLOCKED = "launch_blocked"
    """A launch waits, because the queue of the device is full."""
    COPY = "copy"
    COLLECTIVE = "collective"
    PROBE = "probe"
    """It runs probes of the receiver: without the watch, this time is not there."""
    UNKNOWN = "unknown"


class Phase(StrEnum):
    """A phase of training (`zernel.phase`)."""

    DATA_LOADING = "data_loading"
    GPU_COMPUTE = "gpu_compute"
    NCCL_COLLECTIVE = "nccl_collective"
    OPTIMIZER_STEP = "optimizer_step"
    UNKNOWN = "unknown"


_PHASES: Final = {
    Position.LOAD: Phase.DATA_LOADING,
    Position.FORWARD: Phase.GPU_COMPUTE,
    Position.BACKWARD: Phase.GPU_COMPUTE,
    Position.CLIP: Phase.GPU_COMPUTE,
    Position.INFERENCE: Phase.GPU_COMPUTE,
    Position.EVALUATION: Phase.GPU_COMPUTE,
    Position.COMPILE: Phase.GPU_COMPUTE,
    Position.OPTIMIZER: Phase.OPTIMIZER_STEP,
    Position.ZERO_GRAD: Phase.OPTIMIZER_STEP,
    Position.AVERAGE: Phase.OPTIMIZER_STEP,
    Position.AFTER_STEP: Phase.UNKNOWN,
    Position.ENVIRONMENT: Phase.UNKNOWN,
    Position.CHECKPOINT: Phase.UNKNOWN,
    Position.BETWEEN: Phase.UNKNOWN,
    Position.UNKNOWN: Phase.UNKNOWN,
}


def phase_of(position: Position, activity: Activity) -> Phase:
    """The phase of a moment: a collective wherever it is, else the phase of the position."""
    return Phase.NCCL_COLLECTIVE if activity is Activity.COLLECTIVE else _PHASES[position]


def phase_at(position: str) -> Phase:
    """The phase of the own time of a thread in a position; unknown for a position that is not known."""
    return next((phase for at, phase in _PHASES.items() if at == position), Phase.UNKNOWN)


_DETAILS: Final = {
    Position.LOAD: "loader",
    Position.FORWARD: "forward",
    Position.BACKWARD: "backward",
    Position.CLIP: "clip",
    Position.INFERENCE: "inference",
    Position.EVALUATION: "inference",
    Position.COMPILE: "compile",
    Position.OPTIMIZER: "step",
    Position.ZERO_GRAD: "zero_grad",
    Position.AVERAGE: "average",
    Position.UNKNOWN: "lost",
}
_DETAILS_OF_LOAD: Final = {
    Activity.FILE: "io",
    Activity.SOCKET: "io",
    Activity.FAULT: "io",
    Activity.SWAP: "io",
    Activity.COPY: "copy",
    Activity.LOCK: "queue_wait",
    Activity.PIPE: "queue_wait",
}


def detail_of(position: Position, activity: Activity) -> str:
    """The value of `zernel.phase.detail` for a moment."""
    if activity is Activity.COLLECTIVE:
        return "collective_wait"
    if position is Position.LOAD:
        return _DETAILS_OF_LOAD.get(activity, "loader")
    if activity is Activity.GPU_WAIT and _PHASES[position] is Phase.GPU_COMPUTE:
        return "gpu_wait"
    return _DETAILS.get(position, "host")


@dataclass(frozen=True, slots=True, eq=False)
class Moment:
    """A position with an activity. There is one object for each pair: see `MOMENTS`."""

    position: Position
    activity: Activity
    phase: Phase
    detail: str


MOMENTS: Final = {
    position: {
        activity: Moment(position, activity, phase_of(position, activity), detail_of(position, activity))
        for activity in Activity
    }
    for position in Position
}
"""By position and activity."""
