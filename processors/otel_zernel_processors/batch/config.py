"""The configuration of the batch processor. The keys are those of the OpenTelemetry Collector."""

from pydantic import Field, field_validator, model_validator

from otel_zernel.component import ComponentConfig
from otel_zernel.types import Duration


class BatchConfig(ComponentConfig):
    """When a joined batch is sent on. Each signal is joined and counted by itself."""

    timeout: Duration = 0.2
    """Seconds after which an incomplete batch is sent. 0 sends every batch at once."""
    send_batch_size: int = Field(default=8192, ge=0)
    """Data points, spans or log records from which on a batch is sent. 0 sends every batch at once."""
    send_batch_max_size: int = Field(default=0, ge=0)
    """Items of a batch at most; larger ones are split. 0 means no limit."""
    metadata_keys: tuple[str, ...] = ()
    """Not supported: batches carry no metadata of clients."""
    metadata_cardinality_limit: int = Field(default=1000, ge=0)
    """Without an effect, because `metadata_keys` must be empty."""

    @field_validator("metadata_keys")
    @classmethod
    def _is_empty(cls, keys: tuple[str, ...]) -> tuple[str, ...]:
        if keys:
            raise ValueError(
                "not supported, because batches carry no metadata of clients; use a pipeline for each tenant"
            )
        return keys

    @model_validator(mode="after")
    def _sizes_fit(self) -> "BatchConfig":
        if 0 < self.send_batch_max_size < self.send_batch_size:
            raise ValueError(
                f"send_batch_max_size ({self.send_batch_max_size}) must be 0 or at least send_batch_size "
                f"({self.send_batch_size})"
            )
        return self
