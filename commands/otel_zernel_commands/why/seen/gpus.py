"""A GPU as NVML describes it."""

from collections import defaultdict
from dataclasses import dataclass, field

from otel_zernel.otlp.points import AttributeValue
from otel_zernel_libraries.training import HARMLESS_THROTTLING


@dataclass(slots=True)
class MeanValue:
    """The mean and the largest of the values of a gauge."""

    total: float = 0.0
    count: int = 0
    largest: float = 0.0

    def add(self, value: float) -> None:
        """Adds one reading."""
        self.largest = max(self.largest, value) if self.count else value
        self.total += value
        self.count += 1

    @property
    def mean(self) -> float | None:
        """None without readings."""
        return self.total / self.count if self.count else None


@dataclass(slots=True)
class SeenGpu:
    """The readings of one GPU while the command watched."""

    attributes: dict[str, AttributeValue]
    """Those of its resource and of its points: `hw.id`, `hw.name`, `zernel.gpu.index`."""
    utilization: MeanValue = field(default_factory=MeanValue)
    """The share of time in which kernels ran, 0 to 1."""
    power: MeanValue = field(default_factory=MeanValue)
    """W."""
    temperature: MeanValue = field(default_factory=MeanValue)
    """Degrees Celsius."""
    memory: MeanValue = field(default_factory=MeanValue)
    """The share of its memory in use, 0 to 1."""
    throttled: defaultdict[str, MeanValue] = field(default_factory=lambda: defaultdict(MeanValue))
    """By reason: 1 for each reading in which it lowered the clocks, else 0."""
    pids: set[int] = field(default_factory=set)
    """The processes that use its memory."""

    @property
    def index(self) -> int:
        """Its number on the host; -1 if it is not known."""
        index = self.attributes.get("zernel.gpu.index", -1)
        return index if isinstance(index, int) else -1

    @property
    def name(self) -> str:
        """Its model; empty if it is not known."""
        return str(self.attributes.get("hw.model") or self.attributes.get("hw.name") or "")

    def slowed(self) -> dict[str, float] | None:
        """By reason that is no matter of course: the share of readings in which it lowered the clocks, if any.

        None if there is no reading.
        """
        if not self.throttled:
            return None
        shares = {
            reason: one.mean or 0.0 for reason, one in self.throttled.items() if reason not in HARMLESS_THROTTLING
        }
        return {reason: share for reason, share in sorted(shares.items()) if share}
