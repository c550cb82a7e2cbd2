"""The words for phases, details and reasons in the report."""

_PHASES = {
    "data_loading": "data loading",
    "gpu_compute": "compute",
    "nccl_collective": "communication",
    "optimizer_step": "optimizer",
    "unknown": "other",
}
_DETAILS = {
    "loader": "DataLoader",
    "queue_wait": "waiting for a queue",
    "io": "reading files",
    "copy": "copies to the device",
    "forward": "forward pass",
    "backward": "backward pass",
    "inference": "passes without gradients",
    "gpu_wait": "waiting for the GPU",
    "clip": "after backward",
    "collective_wait": "waiting for other ranks",
    "enqueue": "issuing collectives",
    "step": "optimizer step",
    "zero_grad": "zero_grad",
    "host": "other code",
    "launch": "issuing work to the GPU",
    "lock": "waiting for a lock",
    "sleep": "sleeping",
    "descheduled": "waiting for a CPU",
    "sampled": "not seen: calls were sampled",
    "lost": "not seen: lost events",
}
_REASONS = {
    "sw_power_cap": "its power limit",
    "hw_slowdown": "the hardware (heat or power)",
    "sw_thermal_slowdown": "heat",
    "hw_thermal_slowdown": "heat",
    "hw_power_brake": "the power supply",
}


def phase_label(phase: str) -> str:
    """A value of `zernel.phase` in words."""
    return _PHASES.get(phase, phase)


def detail_label(detail: str) -> str:
    """A value of `zernel.phase.detail` in words."""
    return _DETAILS.get(detail, detail)


def reason_label(reason: str) -> str:
    """A value of `zernel.gpu.throttle.reason` in words."""
    return _REASONS.get(reason, reason)
