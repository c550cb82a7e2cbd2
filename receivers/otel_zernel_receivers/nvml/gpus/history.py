"""The state of a device that outlives a restart of the driver: counters, energy, positions, samples not yet sent."""

from collections.abc import Iterable
from dataclasses import dataclass, field
from math import inf

from otel_zernel.clock import Clock
from otel_zernel_libraries.histograms.resolution import default_range
from otel_zernel_receivers.nvml.config import NvmlConfig
from otel_zernel_receivers.nvml.points.histograms import SampleHistogram
from otel_zernel_receivers.nvml.points.metrics import METRICS
from otel_zernel_receivers.nvml.points.series import NvmlSeries
from otel_zernel_receivers.nvml.readings.processes import GpuProcesses, ProcessNames
from otel_zernel_receivers.nvml.readings.samples import SAMPLED_SERIES, NvmlSample, SampleRing


@dataclass(slots=True)
class DriverCounter:
    """One counter, continued after wrap-around and restarted after a reload of the driver."""

    raw: float = -inf
    """The last number that the driver returned."""
    read_ns: int = 0
    """The time at which it was read, in ns since 1970."""
    offset: float = 0.0
    start_ns: int = 0
    """The start time of the sum, in ns since 1970; 0 (unknown) until the first reload."""

    def update(self, raw: float, wraps_at: float, now_ns: int) -> float:
        """Returns the sum, after the driver has returned `raw`.

        A lower number than before is a wrap-around if the number fell from the upper half of its range to the lower.
        The range ends at `wraps_at`; 0 means that the counter never wraps. Otherwise the driver has reset the counter.
        """
        if raw < self.raw:
            if wraps_at and raw < wraps_at / 2 <= self.raw:
                self.offset += wraps_at
            else:
                self.offset = 0.0
                self.start_ns = self.read_ns
        self.raw = raw
        self.read_ns = now_ns
        return self.offset + raw


@dataclass(slots=True)
class PowerIntegral:
    """Power integrated over time, with the trapezoidal rule."""

    joules: float = 0.0
    last: NvmlSample | None = None

    def add(self, samples: Iterable[NvmlSample]) -> None:
        """Adds samples in us and mW, in order of time."""
        for time, milliwatts in samples:
            if self.last is not None and time > self.last[0]:
                self.joules += (time - self.last[0]) * (milliwatts + self.last[1]) / 2e9
            self.last = time, milliwatts


@dataclass
class DeviceHistory:
    """The history of a board or a MIG instance."""

    start_ns: int
    """When the receiver found the device, in ns since 1970."""
    scraped_ns: int
    """The end of the last histogram points, in ns since 1970."""
    processes: GpuProcesses
    counters: dict[NvmlSeries, DriverCounter] = field(default_factory=dict)
    rings: dict[int, SampleRing] = field(default_factory=lambda: {kind: SampleRing(kind) for kind in SAMPLED_SERIES})
    """By nvmlSamplingType_t."""
    distributions: dict[NvmlSeries, SampleHistogram] = field(
        default_factory=lambda: {series: _distribution(series) for series in SAMPLED_SERIES.values()}
    )
    energy: PowerIntegral = field(default_factory=PowerIntegral)
    has_memory: bool | None = None
    """Whether the driver reports memory of the device; None until it was asked."""
    replaceable: frozenset[NvmlSeries] = frozenset()
    """The current series of metrics whose attributes change with the value."""

    @classmethod
    def start(cls, config: NvmlConfig, clock: Clock) -> "DeviceHistory":
        """The history of a new device."""
        now = clock.time_ns()
        names = ProcessNames(config.processes.proc)
        return cls(now, now, GpuProcesses(names, config.enabled(), clock.time_ns))


def _distribution(series: NvmlSeries) -> SampleHistogram:
    """Counts as finely as the `percentiles` processor, so that it returns the percentiles of all samples."""
    resolution, _ = default_range(METRICS[series.metric].unit)
    return SampleHistogram(series.scaled, round(1 / resolution))
