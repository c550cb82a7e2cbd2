"""The rule by which shares of time become a verdict."""

from collections.abc import Mapping
from typing import Final

FEWEST_STEPS: Final = 3
"""The fewest training steps for a verdict."""
ESSENTIAL_MARKS: Final = frozenset({"scopes", "backward"})
"""The values of `zernel.mark` that every training step needs. The others matter to loops without a DataLoader, or to
distributed jobs."""
PHASE_OF: Final = {
    "input_bound": "data_loading",
    "communication_bound": "nccl_collective",
    "optimizer_bound": "optimizer_step",
    "compute_bound": "gpu_compute",
}
"""The phase whose share decides a verdict. `host_bound` is decided by one detail of the phase `unknown`."""
_WAITS: Final = ("input_bound", "communication_bound", "optimizer_bound", "host_bound")


def verdict_of_shares(values: Mapping[str, float], limits: Mapping[str, float]) -> str:
    """The verdict on a training: `values` and `limits` are shares of its time, and the jitter of its steps, by verdict.

    Of input, communication, optimizer and other code the one furthest above its limit counts. If none of them is above
    it, the order is: `unstable`, `compute_bound`, `none`.
    """
    excess = {name: value / limits[name] if limits[name] else 1.0 + value for name, value in values.items()}
    worst = max(_WAITS, key=lambda name: excess[name])
    return next((name for name in (worst, "unstable", "compute_bound") if excess[name] >= 1.0), "none")
