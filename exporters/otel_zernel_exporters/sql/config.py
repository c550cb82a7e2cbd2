"""The configuration of the sql exporter."""

from typing import Annotated, Final, Self

from pydantic import Field, model_validator

from otel_zernel.delivery_config import RemoteExporterConfig
from otel_zernel.types import Duration, format_duration
from otel_zernel_libraries.store.config import WritableStoreConfig

_HOUR: Final = 3600.0
_LONGEST: Final = 31 * 24 * _HOUR


class SqlConfig(RemoteExporterConfig, WritableStoreConfig):
    """The database, and how batches reach it."""

    timeout: Duration = 30.0
    """Seconds for one attempt; 0 for no limit."""
    series_cache: Annotated[int, Field(ge=1000)] = 200_000
    """Series that are kept in memory at most. A series that is not costs a query."""
    retention: Duration = 0.0
    """Seconds after which points are removed, by their own times; 0 for never. Older points are not stored."""
    max_future: Duration = 0.0
    """Seconds by which the time of a point may be ahead of the clock; 0 for any. Later points are dropped."""
    partition: Annotated[Duration, Field(ge=_HOUR, le=_LONGEST)] = 24 * _HOUR
    """Seconds of points in one partition of PostgreSQL. Retention removes whole partitions."""

    @model_validator(mode="after")
    def _retention_has_partitions(self) -> Self:
        if 0 < self.retention < self.partition:
            raise ValueError(
                f"retention ({format_duration(self.retention)}) must not be shorter than partition "
                f"({format_duration(self.partition)})"
            )
        return self
