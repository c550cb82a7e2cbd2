"""The configuration of the nvml receiver."""

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
    hint = f"did you mean {near[0]}?" if near else "the page Metrics of the documentation lists all metrics"
    raise ValueError(f"there is no metric {name!r}; {hint}")


MetricName = Annotated[str, AfterValidator(_known)]


class MetricConfig(ComponentConfig):
    """Enables or disables one metric."""

    enabled: bool
    """Whether to query the driver for the metric, and to send it."""


class GpuProcessesConfig(ComponentConfig):
    """The processes on the GPUs."""

    enabled: bool = True
    """Whether to query the driver for the processes."""
    proc: Path = Path("/proc")
    """The procfs in which pids are looked up. In a container: the host's, if it is mounted."""


class NvmlConfig(ScraperConfig):
    """The metrics to query, and how often. The options of all scrapers have the OpenTelemetry Collector's names."""

    collection_interval: PositiveDuration = 10.0
    """Seconds from the start of one scrape of a GPU to the start of the next."""
    initial_delay: Duration = 1.0
    """Seconds before the first scrape."""
    timeout: PositiveDuration = 5.0
    """Seconds after which a GPU counts as hung. Its thread keeps waiting, and the other GPUs are not affected."""
    rediscover_interval: PositiveDuration = 30.0
    """Seconds between checks for a driver, for GPUs, and for MIG instances that were added or removed."""
    slow_query: PositiveDuration = 0.05
    """Seconds that a query may take at every scrape. A query that takes n times as long runs at every nth scrape."""
    earlier_xids: Duration = 0.0
    """Seconds before the start. XIDs in the kernel's log from then on count, too."""
    metrics: Mapping[MetricName, MetricConfig] = Field(default_factory=dict)
    """Metrics to enable or disable, by name."""
    processes: GpuProcessesConfig = GpuProcessesConfig.model_construct()

    def enabled(self) -> frozenset[str]:
        """The names of the metrics to send."""
        configured = {name: metric.enabled for name, metric in self.metrics.items()}
        return frozenset(name for name, metric in METRICS.items() if configured.get(name, metric.enabled))
