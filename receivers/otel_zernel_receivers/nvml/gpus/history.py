"""What outlives a driver's restart: counters, places in sample buffers, and what is not sent yet."""

from collections.abc import Callable
from dataclasses import dataclass, field

from otel_zernel_receivers.nvml.config import NvmlConfig
from otel_zernel_receivers.nvml.gpus.counters import Counter
from otel_zernel_receivers.nvml.gpus.energy import Integral
from otel_zernel_receivers.nvml.points.histograms import SampleHistogram
from otel_zernel_receivers.nvml.points.series import Stream
from otel_zernel_receivers.nvml.readings.processes import Names, Processes
from otel_zernel_receivers.nvml.readings.samples import PER_UNIT, STREAMS, Ring


@dataclass
class History:
    """What is known of a device, a board or a MIG instance."""

    start_ns: int
    """When the receiver first saw it."""
    scraped_ns: int
    """When it last sent histograms."""
    processes: Processes
    counters: dict[Stream, Counter] = field(default_factory=dict)
    rings: dict[int, Ring] = field(default_factory=lambda: {kind: Ring(kind) for kind in STREAMS})
    distributions: dict[Stream, SampleHistogram] = field(
        default_factory=lambda: {one: SampleHistogram(one.scaled, PER_UNIT) for one in STREAMS.values()}
    )
    energy: Integral = field(default_factory=Integral)

    @classmethod
    def new(cls, config: NvmlConfig, time_ns: Callable[[], int]) -> "History":
        """That of a device nobody has seen before."""
        now = time_ns()
        return cls(now, now, Processes(Names(config.processes.proc), config.enabled(), time_ns))
