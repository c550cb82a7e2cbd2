"""The activities of a training thread, with the phase and the detail of each."""

from typing import NamedTuple

PHASES = ("data_loading", "gpu_compute", "nccl_collective", "optimizer_step", "unknown")


class PhaseDetail(NamedTuple):
    """The meaning of an activity."""

    phase: str
    detail: str
    """`zernel.phase.detail`: the evidence for the phase."""


ACTIVITIES = {
    "collective": PhaseDetail("nccl_collective", "collective_wait"),
    "enqueue": PhaseDetail("nccl_collective", "enqueue"),
    "sync": PhaseDetail("gpu_compute", "gpu_wait"),
    "ddp": PhaseDetail("gpu_compute", "forward"),
    "data_loading": PhaseDetail("data_loading", "loader"),
    "queue_wait": PhaseDetail("data_loading", "queue_wait"),
    "io": PhaseDetail("data_loading", "io"),
    "copy": PhaseDetail("data_loading", "copy"),
    "backward": PhaseDetail("gpu_compute", "backward"),
    "optimizer": PhaseDetail("optimizer_step", "step"),
    "zero_grad": PhaseDetail("optimizer_step", "zero_grad"),
    "forward": PhaseDetail("gpu_compute", "forward"),
    "inference": PhaseDetail("gpu_compute", "inference"),
    "compute": PhaseDetail("gpu_compute", "clip"),
    "host": PhaseDetail("unknown", "host"),
    "unknown": PhaseDetail("unknown", "host"),
    "lost": PhaseDetail("unknown", "lost"),
}
"""The activities. `queue_wait`, `io` and `copy` are waits for data without a DataLoader. `compute` is the time between
the last pass and the end of the optimizer: gradient clipping, loss scaling. `host` and `unknown` are other code."""
PHASE_OF = {name: activity.phase for name, activity in ACTIVITIES.items()}
"""The phase of each activity."""
DETAIL_OF = {name: activity.detail for name, activity in ACTIVITIES.items()}
"""The detail of each activity."""
