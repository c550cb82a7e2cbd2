"""What an answer on a process needs, and the phase that each verdict is about."""

from typing import Final

FEWEST_STEPS: Final = 3
"""The fewest training steps for an answer."""
ESSENTIAL_MARKS: Final = frozenset({"scopes", "backward"})
"""The values of `zernel.mark` that every training step needs. The others matter to loops without a DataLoader, or to
distributed jobs."""
PHASE_OF: Final = {
    "input_bound": "data_loading",
    "communication_bound": "nccl_collective",
    "optimizer_bound": "optimizer_step",
    "compute_bound": "gpu_compute",
}
"""Without the verdicts that no single phase shows."""
