"""The time that a probe adds to a call of the job."""

from dataclasses import dataclass, replace

HOT, COLD = 500_000.0, 50_000.0
"""Hits per second. From `HOT` on, the code and the data of a probe stay in the caches of the CPU. Up to `COLD`, other
work has replaced them between two hits."""


@dataclass(frozen=True, slots=True)
class ProbeCost:
    """The time that a probe adds, measured on a function that does nothing."""

    floor_ns: int
    """Added to the recorded duration: the median recorded duration of such a call."""
    call_ns: float
    """Added to the real duration of a call."""
    nested_ns: float
    """Added to a call that is not counted, because a counted call contains it."""
    entry_ns: float
    """Added to a call of a function whose return has no probe."""
    coldness: float = 1.0
    """The factor for hits with other work between them. The other fields are those of one hit right after another."""

    def at(self, rate: float) -> "ProbeCost":
        """The cost for a process with so many hits per second."""
        spacing = min(max((1 / max(rate, COLD) - 1 / HOT) / (1 / COLD - 1 / HOT), 0.0), 1.0)
        factor = 1 + spacing * (self.coldness - 1)
        return replace(
            self, call_ns=self.call_ns * factor, nested_ns=self.nested_ns * factor, entry_ns=self.entry_ns * factor
        )


TRAINING = 3.2
"""How much more a hit costs amid a training than amid the work of the calibration: PyTorch fills more of the caches.
Source: `python -m benchmarks probe_cost`, whose pairs are in docs/benchmarks.md."""
HIGHEST_COLDNESS = 10.0
"""A limit, since other programs disturb the measurement."""


def coldness_of(hot_ns: float, between_work_ns: float) -> float:
    """The coldness in a training, from the time that a probe adds to a call right after another (`hot_ns`), and to a
    call with other work around it."""
    if hot_ns <= 0:
        return 1.0
    return min(TRAINING * max(between_work_ns / hot_ns, 1.0), HIGHEST_COLDNESS)
