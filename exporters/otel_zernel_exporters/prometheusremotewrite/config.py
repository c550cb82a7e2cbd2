"""The configuration of the exporter, with the names and defaults of the OpenTelemetry Collector."""

from typing import Annotated, Any, Literal
from urllib.parse import urlsplit

from pydantic import Field, field_validator

from otel_zernel.authentication import AuthConfig
from otel_zernel.component import ComponentConfig
from otel_zernel.delivery_config import HttpRetryConfig, PositiveCount, RemoteExporterConfig, SendingQueueConfig
from otel_zernel.types import PositiveDuration, Secret, SecretHeaders
from otel_zernel_libraries.clients.addresses import is_loopback
from otel_zernel_libraries.clients.endpoint_config import check_url
from otel_zernel_libraries.clients.tls_config import TlsConfig
from otel_zernel_libraries.histograms.temporality import MovingBounds, SeriesMemoryConfig
from otel_zernel_libraries.prometheus import Options
from otel_zernel_libraries.prometheus.config import SeriesConfig

ProtobufMessage = Literal["prometheus.WriteRequest", "io.prometheus.write.v2.Request"]
_SMALLEST_REQUEST = 10_000
"""Bytes. Samples of histograms with many buckets take some kB."""
_OWN_HEADERS = frozenset(
    {"content-type", "content-encoding", "content-length", "user-agent", "x-prometheus-remote-write-version"}
)


class WriteQueueConfig(SendingQueueConfig):
    """The queue between the pipelines and the exporter."""

    num_consumers: PositiveCount = 1
    """Batches that are sent at the same time. It must be 1, since the samples of a series must arrive in order."""

    @field_validator("num_consumers")
    @classmethod
    def _keeps_the_order(cls, count: int) -> int:
        if count != 1:
            raise ValueError(
                "must be 1, since the samples of a series must arrive in order; set remote_write_queue::num_consumers "
                "for more requests at the same time"
            )
        return count


class WriteRetryConfig(HttpRetryConfig):
    """When a failed attempt is repeated."""

    initial_interval: PositiveDuration = 0.05
    """Seconds before the first repetition."""


class RemoteWriteQueueConfig(ComponentConfig):
    """How a batch is divided into requests."""

    num_consumers: PositiveCount = 5
    """The most requests of a batch at the same time. No two of them have samples of the same series."""


class TargetInfoConfig(ComponentConfig):
    """The metric `target_info`."""

    enabled: bool = True
    """Whether to write the other attributes of each resource as labels of `target_info`."""


class PrometheusRemoteWriteConfig(RemoteExporterConfig, SeriesConfig):
    """The address of the server, and how metrics become series."""

    endpoint: str = Field("", validate_default=True)
    """The URL of remote write: `http://localhost:9090/api/v1/write`."""
    headers: SecretHeaders = Field(default_factory=dict)
    """Headers of every request. Values are never printed."""
    auth: AuthConfig | None = None
    """The extension that adds credentials to each request."""
    tls: TlsConfig = TlsConfig.model_construct()
    compression: Literal["snappy"] = "snappy"
    """The only compression of the protocol."""
    protobuf_message: ProtobufMessage = "io.prometheus.write.v2.Request"
    """Protocol 2.0, or `prometheus.WriteRequest` for 1.0. If the server does not have 2.0, the exporter uses 1.0. The
    OpenTelemetry Collector's default is 1.0."""
    external_labels: dict[str, str] = Field(default_factory=dict)
    """Labels added to every series."""
    target_info: TargetInfoConfig = TargetInfoConfig.model_construct()
    """The metric `target_info`."""
    disable_scope_info: bool = False
    """Omit the `otel_scope_*` labels."""
    send_metadata: bool = False
    """Whether requests of protocol 1.0 have metadata. Those of 2.0 always have them."""
    native_histograms: bool = True
    """Write exponential histograms as native histograms. If not, they have classic buckets."""
    moving_bounds: Literal["exponential", "fixed"] | None = None
    """The form of histograms whose bounds differ from point to point, such as those of `ebpf` and `phases`:
    `exponential` histograms, or `fixed` bounds by unit. null: exponential with protocol 2.0 and `native_histograms`,
    else fixed. No server of remote write adds up the bounds as they are."""
    convert_histograms_to_nhcb: bool = False
    """Write histograms with explicit bounds as native histograms with custom buckets. Protocol 2.0 only."""
    max_batch_size_bytes: Annotated[int, Field(ge=_SMALLEST_REQUEST)] = 3_000_000
    """The most bytes of a request before compression."""
    remote_write_queue: RemoteWriteQueueConfig = RemoteWriteQueueConfig.model_construct()
    """How a batch is divided into requests."""
    conversion: SeriesMemoryConfig = SeriesMemoryConfig.model_construct()
    """The limits of the memory for the totals of deltas. Cumulative series take none."""
    sending_queue: WriteQueueConfig = WriteQueueConfig.model_construct()
    retry_on_failure: WriteRetryConfig = WriteRetryConfig.model_construct()

    @field_validator("endpoint")
    @classmethod
    def _endpoint_is_a_url(cls, endpoint: str) -> str:
        if not endpoint:
            raise ValueError("required: set the URL of remote write, for example http://localhost:9090/api/v1/write")
        return check_url(endpoint, "http://host:9090/api/v1/write or https://...")

    @field_validator("headers")
    @classmethod
    def _headers_are_free(cls, headers: dict[str, Secret]) -> dict[str, Secret]:
        for name in headers:
            if name.lower() in _OWN_HEADERS:
                raise ValueError(f"{name!r} is set by the protocol; remove it")
        return headers

    @field_validator("remote_write_queue", mode="before")
    @classmethod
    def _null_means_defaults(cls, value: Any) -> Any:
        return {} if value is None else value

    @property
    def settles_to(self) -> MovingBounds:
        """The form of histograms with moving bounds."""
        is_native = self.native_histograms and self.protobuf_message != "prometheus.WriteRequest"
        return self.moving_bounds or ("exponential" if is_native else "fixed")

    @property
    def is_unprotected(self) -> bool:
        """Whether others on the network can read the requests."""
        url = urlsplit(self.endpoint)
        return url.scheme == "http" and not is_loopback(url.hostname or "")

    @property
    def options(self) -> Options:
        """The options of the translation."""
        return Options(
            namespace=self.namespace,
            const_labels=self.external_labels,
            label_names=self.label_names,
            resource_constant_labels=self.resource_labels,
            without_scope_info=self.disable_scope_info,
            translation_strategy=self.naming_strategy,
        )
