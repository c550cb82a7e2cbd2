"""The part of the configuration that concerns a single device."""

from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True, slots=True)
class DeviceOptions:
    """What is read from a device, and how."""

    metrics: frozenset[str]
    """The names of the metrics to send."""
    slow_query: float
    """Seconds that a query may take at every scrape. A query that takes n times as long runs at every nth scrape."""
    processes: bool
    """Whether to read the processes on the device."""
    proc: Path
    """The `/proc` in which pids are looked up."""
