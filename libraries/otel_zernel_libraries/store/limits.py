"""The times that a store accepts, and the options of a writer."""

from dataclasses import dataclass
from typing import Final

from otel_zernel_libraries.store.rows.integers import LATEST_TIME

_NS: Final = 10**9


@dataclass(frozen=True, slots=True)
class WriterOptions:
    """The options of a writer besides the way to its database. Durations are in ns."""

    setting: str
    """The path of the component in the configuration."""
    series: int
    """Series in memory at most."""
    partition_ns: int = 86_400 * _NS
    retention_ns: int = 0
    """0 for ever."""
    max_future_ns: int = 0
    """How far times may be ahead of the clock; 0 for any."""
    most_partitions: int = 2000
    """Partitions of a table. More would slow every query, and times that are wrong could ask for any number."""

    @property
    def url_setting(self) -> str:
        return f"{self.setting}::url"

    def earliest(self, now_ns: int) -> int:
        """The first time that is kept."""
        return max(0, now_ns - self.retention_ns) if self.retention_ns else 0

    def latest(self, now_ns: int) -> int:
        """The last time that is accepted."""
        return min(LATEST_TIME, now_ns + self.max_future_ns) if self.max_future_ns else LATEST_TIME
