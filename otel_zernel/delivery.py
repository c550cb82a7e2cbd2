"""One exporter's queue, retry and timeout, with the Collector's names and defaults (exporterhelper)."""

from typing import Annotated, Literal, Self

from pydantic import Field, model_validator

from otel_zernel.component import ComponentConfig
from otel_zernel.config.types import Duration, PositiveDuration, Ratio

Sizer = Literal["requests", "items", "bytes"]
Count = Annotated[int, Field(ge=0)]
PositiveCount = Annotated[int, Field(ge=1)]


class BatchConfig(ComponentConfig):
    """How queued batches are joined into one request."""

    flush_timeout: PositiveDuration = 0.2
    """The longest a batch waits for others."""
    min_size: Count = 8192
    """A request is sent once it has this many items."""
    max_size: Count = 0
    """Larger ones are split; 0 for no limit."""
    sizer: Literal["items"] = "items"

    @model_validator(mode="after")
    def _sizes_agree(self) -> Self:
        if self.max_size and self.max_size < self.min_size:
            raise ValueError(f"max_size ({self.max_size}) must not be less than min_size ({self.min_size})")
        return self


class SendingQueue(ComponentConfig):
    """The queue between the pipeline and the exporter's consumers."""

    enabled: bool = True
    num_consumers: PositiveCount = 10
    queue_size: PositiveCount = 1000
    sizer: Sizer = "requests"
    block_on_overflow: bool = False
    """Wait for room in place of refusing."""
    storage: None = None
    """Reserved for a durable queue."""
    batch: BatchConfig | None = None


class RetryOnFailure(ComponentConfig):
    """When a failed attempt is repeated."""

    enabled: bool = True
    initial_interval: PositiveDuration = 5.0
    multiplier: Annotated[float, Field(ge=1)] = 1.5
    randomization_factor: Ratio = 0.5
    max_interval: PositiveDuration = 30.0
    max_elapsed_time: Duration = 300.0
    """Give up and drop after this long; 0 for never."""


class LocalExporterConfig(ComponentConfig):
    """An exporter that stays on this machine: its deliveries have a fixed queue of one consumer, in order."""


class RemoteExporterConfig(ComponentConfig):
    """An exporter that sends to somebody: queue, retry and timeout are the user's to set."""

    timeout: Duration = 5.0
    """Seconds for one attempt; 0 for no limit."""
    sending_queue: SendingQueue = SendingQueue()
    retry_on_failure: RetryOnFailure = RetryOnFailure()
