"""The configuration of the memory limiter. The keys are those of the OpenTelemetry Collector."""

from dataclasses import dataclass

from pydantic import Field, model_validator

from otel_zernel.component import ComponentConfig
from otel_zernel.types import Duration, PositiveDuration

MIB = 1024 * 1024
_SPIKE_SHARE = 5  # without a spike limit, it is a fifth of the limit


@dataclass(frozen=True, slots=True)
class MemoryLimits:
    """Bytes."""

    soft: int
    """Above it, data are refused."""
    hard: int
    """Above it, data are refused at once, and a full garbage collection runs."""


UNLIMITED = MemoryLimits(2**63, 2**63)


class MemoryLimiterConfig(ComponentConfig):
    """The limits of the process's resident memory."""

    check_interval: PositiveDuration = 1.0
    """Seconds between looks while no data come. With data, the limiter looks up to 100 times a second."""
    limit_mib: int = Field(default=0, ge=0)
    """The hard limit in MiB. It wins over `limit_percentage`."""
    spike_limit_mib: int = Field(default=0, ge=0)
    """The soft limit is so many MiB below the hard limit. 0 means a fifth of the hard limit."""
    limit_percentage: int = Field(default=0, ge=0, le=100)
    """The hard limit in percent of the memory that the process may use: that of its control groups, or the machine."""
    spike_limit_percentage: int = Field(default=0, ge=0, le=100)
    """The distance of the soft limit in percent of the same. 0 means a fifth of the hard limit."""
    min_gc_interval_when_soft_limited: Duration = 10.0
    """Seconds at least between attempts to free memory above the soft limit."""
    min_gc_interval_when_hard_limited: Duration = 0.0
    """Seconds at least between attempts to free memory above the hard limit; in any case almost `check_interval`."""
    max_gc_interval_when_soft_limited: Duration = 30.0
    """After an attempt that frees less than 5 %, the interval doubles up to this. 0 keeps it."""
    max_gc_interval_when_hard_limited: Duration = 30.0
    """The same above the hard limit."""

    @model_validator(mode="after")
    def _has_limits(self) -> "MemoryLimiterConfig":
        if not self.limit_mib and not self.limit_percentage:
            raise ValueError("set limit_mib or limit_percentage")
        for unit in ("mib", "percentage"):
            limit, spike = getattr(self, f"limit_{unit}"), getattr(self, f"spike_limit_{unit}")
            if limit and spike >= limit:
                raise ValueError(f"spike_limit_{unit} ({spike}) must be less than limit_{unit} ({limit})")
        if self.min_gc_interval_when_soft_limited < self.min_gc_interval_when_hard_limited:
            raise ValueError(
                "min_gc_interval_when_soft_limited must not be less than min_gc_interval_when_hard_limited"
            )
        return self

    def limits(self, available: int | None) -> MemoryLimits | None:
        """The limits for a process that may use so many bytes. None if they depend on an unknown amount."""
        if self.limit_mib:
            hard, spike = self.limit_mib * MIB, self.spike_limit_mib * MIB
        elif available:
            hard, spike = available * self.limit_percentage // 100, available * self.spike_limit_percentage // 100
        else:
            return None
        return MemoryLimits(hard - (spike or hard // _SPIKE_SHARE), hard)
