"""The configuration of an exporter's queue, retries and timeout.

Names and defaults are those of the OpenTelemetry Collector's `exporterhelper`.
"""

from collections.abc import Mapping
from typing import Annotated, Any, Literal, Self

from pydantic import Field, model_validator

from otel_zernel.component import ComponentConfig
from otel_zernel.storage import Storage
from otel_zernel.types import Duration, ExtensionId, PositiveDuration, Ratio, Section

Sizer = Literal["requests", "items", "bytes"]
BatchSizer = Literal["items", "bytes"]
Count = Annotated[int, Field(ge=0)]
PositiveCount = Annotated[int, Field(ge=1)]


class QueueBatchConfig(Section):
    """How queued batches are joined into one request."""

    flush_timeout: PositiveDuration = 0.2
    """Seconds after which a request is sent even if it is smaller than `min_size`."""
    min_size: Count = 8192
    """A request of this size is sent at once."""
    max_size: Count = 0
    """Larger requests are split; 0 for no limit."""
    sizer: BatchSizer = "items"
    """The unit of both sizes. The default is the `sizer` of the queue, if that is configured."""

    @model_validator(mode="after")
    def _sizes_agree(self) -> Self:
        if self.max_size and self.max_size < self.min_size:
            raise ValueError(f"max_size ({self.max_size}) must not be less than min_size ({self.min_size})")
        return self


class SendingQueueConfig(Section):
    """The queue between the pipelines and an exporter."""

    enabled: bool = True
    num_consumers: PositiveCount = 10
    """How many requests are sent at the same time."""
    queue_size: PositiveCount = 1000
    """The capacity, in units of `sizer`."""
    sizer: Sizer = "requests"
    block_on_overflow: bool = False
    """Whether a receiver waits for room in a full queue. If not, a full queue in memory drops the batch, and a durable
    one refuses it."""
    storage: Annotated[str | None, ExtensionId(Storage)] = None
    """The id of a storage extension. It makes the queue durable: batches outlive the process."""
    max_age: Duration = 0.0
    """Seconds after which a waiting batch is dropped; 0 for never."""
    memory_limit_mib: PositiveCount | None = None
    """MiB of batches that the queue holds in memory, besides `queue_size`. By default, the queues share a quarter of
    the memory limit of the process."""
    batch: QueueBatchConfig | None = None

    @property
    def max_bytes(self) -> int | None:
        """`memory_limit_mib` in bytes."""
        return self.memory_limit_mib and self.memory_limit_mib << 20

    @model_validator(mode="before")
    @classmethod
    def _batches_have_the_sizer_of_the_queue(cls, fields: Any) -> Any:
        """As in the OpenTelemetry Collector, if `batch` has options, but no `sizer`. A batch counts no requests."""
        batch = fields.get("batch") if isinstance(fields, Mapping) else None
        sizer = str(fields["sizer"]).lower() if batch and fields.get("sizer") else ""
        if sizer not in ("items", "bytes") or not isinstance(batch, Mapping) or batch.get("sizer") is not None:
            return fields
        return {**fields, "batch": {**batch, "sizer": sizer}}

    @model_validator(mode="after")
    def _storage_needs_a_queue(self) -> Self:
        if self.storage is not None and not self.enabled:
            raise ValueError("storage needs the queue; set enabled: true or remove storage")
        return self


class RetryConfig(Section):
    """When a failed attempt is repeated."""

    enabled: bool = True
    initial_interval: PositiveDuration = 5.0
    """Seconds before the first repetition."""
    multiplier: Annotated[float, Field(ge=1)] = 1.5
    """The factor between two intervals."""
    randomization_factor: Ratio = 0.5
    """The random share by which an interval is longer or shorter."""
    max_interval: PositiveDuration = 30.0
    """The longest interval in seconds, before randomization."""
    max_elapsed_time: Duration = 300.0
    """Seconds after which a batch is dropped; 0 for never."""


class HttpRetryConfig(RetryConfig):
    """When a failed attempt is repeated, for exporters over HTTP."""

    permanent_codes: tuple[Annotated[int, Field(ge=300, le=599)], ...] = (400, 409, 413, 422)
    """The statuses that drop a batch at once. Any other failure may be the fault of an endpoint, a credential or a
    proxy: the batch is kept and sent again."""


class RemoteExporterConfig(ComponentConfig):
    """The configuration of an exporter with `delivery = "remote"`."""

    timeout: Duration = 5.0
    """Seconds for one attempt; 0 for no limit."""
    sending_queue: SendingQueueConfig = SendingQueueConfig.model_construct()
    retry_on_failure: RetryConfig = RetryConfig.model_construct()


LOCAL = RemoteExporterConfig.model_construct(
    timeout=0.0,
    sending_queue=SendingQueueConfig.model_construct(num_consumers=1, queue_size=16),
    retry_on_failure=RetryConfig.model_construct(initial_interval=1.0, max_elapsed_time=0.0),
)
"""The settings for exporters with `delivery = "local"`: one consumer keeps the order, a short queue saves memory, and
retries never end because a full disk may be emptied."""
