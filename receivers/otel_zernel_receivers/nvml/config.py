"""The nvml receiver's configuration."""

from collections.abc import Mapping
from difflib import get_close_matches
from pathlib import Path
from typing import Annotated

from pydantic import AfterValidator, Field

from otel_zernel.component import ComponentConfig, ScraperConfig
from otel_zernel.types import Duration, PositiveDuration
from otel_zernel_receivers.nvml.points.metrics import METRICS


def _known(name: str) -> str:
    if name in METRICS:
        return name
    near = get_close_matches(name, METRICS, 1)
    raise ValueError(f"no metric {name!r}; " + (f"did you mean {near[0]}?" if near else "the README lists them all"))


MetricName = Annotated[str, AfterValidator(_known)]


class MetricConfig(ComponentConfig):
    """One metric's switch."""

    enabled: bool
    """Whether to send it, and to ask the driver for it."""


class ProcessesConfig(ComponentConfig):
    """The processes on the GPUs."""

    enabled: bool = True
    """Whether to ask for them."""
    proc: Path = Path("/proc")
    """Where pids are looked up: the host's, if it is mounted into the container."""


class NvmlConfig(ScraperConfig):
    """What to ask NVML for, and how often; names as in the OpenTelemetry Collector's scrapers."""

    collection_interval: PositiveDuration = 10.0
    """Seconds from the start of one scrape of a GPU to the start of the next."""
    initial_delay: Duration = 1.0
    """Seconds before the first."""
    timeout: PositiveDuration = 5.0
    """Seconds after which a GPU counts as hung. Its thread keeps waiting; the other GPUs don't notice."""
    rediscover_interval: PositiveDuration = 30.0
    """Seconds between looks for a driver, and for GPUs and MIG instances that came or went."""
    slow_query: PositiveDuration = 0.05
    """Seconds a query may take at every scrape. One that takes n times as long is asked at every nth."""
    metrics: Mapping[MetricName, MetricConfig] = Field(default_factory=dict)
    """Metrics to switch on or off, by name."""
    processes: ProcessesConfig = ProcessesConfig()

    def enabled(self) -> frozenset[str]:
        """The names of the metrics to send."""
        switched = {name: switch.enabled for name, switch in self.metrics.items()}
        return frozenset(name for name, metric in METRICS.items() if switched.get(name, metric.enabled))
