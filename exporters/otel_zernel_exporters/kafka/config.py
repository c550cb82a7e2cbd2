"""The configuration of the kafka exporter. Names and defaults are those of the OpenTelemetry Collector."""

from collections.abc import Mapping
from typing import Annotated, Any, Literal, Self

from pydantic import AfterValidator, Field, field_validator, model_validator

from otel_zernel.batch import STABLE_SIGNALS, Signal
from otel_zernel.delivery_config import RemoteExporterConfig, RetryConfig
from otel_zernel.types import Duration, NamedSections, SecretPairs, Section
from otel_zernel_libraries.clients.kafka.client_config import Encoding, KafkaClientConfig, check_topic
from otel_zernel_libraries.histograms.temporality import MovingBounds

Topic = Annotated[str, AfterValidator(check_topic)]
_NO_METADATA = "batches have no request metadata here; remove the key, and use topic_from_attribute or record_headers"


def _no_metadata(value: object) -> object:
    if value:
        raise ValueError(_NO_METADATA)
    return value


NoMetadata = Annotated[str, AfterValidator(_no_metadata)]


class SignalTopicConfig(Section):
    """The topic of one signal, and the encoding of its messages."""

    topic: Topic
    encoding: Encoding = "otlp_proto"
    """`otlp_proto`: bare OTLP messages. `otlp_json`: the same as JSON."""
    topic_from_metadata_key: NoMetadata = ""
    """Not supported."""
    message_key_from_metadata_key: NoMetadata = ""
    """Not supported."""


class MetricsTopicConfig(SignalTopicConfig):
    """The topic of metrics."""

    topic: Topic = "otlp_metrics"


class TracesTopicConfig(SignalTopicConfig):
    """The topic of spans."""

    topic: Topic = "otlp_spans"


class LogsTopicConfig(SignalTopicConfig):
    """The topic of log records."""

    topic: Topic = "otlp_logs"


class CompressionParamsConfig(Section):
    """Parameters of the compression."""

    level: Annotated[int, Field(ge=-1, le=12)] = -1
    """-1 is the default of the codec. gzip has 1 to 9, lz4 and zstd have up to 12, snappy has none."""


class ProducerConfig(Section):
    """How messages are sent."""

    max_message_bytes: Annotated[int, Field(ge=1000, le=1_000_000_000)] = 1_000_000
    """The largest message before compression. Larger batches are split, down to single points."""
    required_acks: Literal[-1, 0, 1] = -1
    """The replicas that confirm a message: -1 (or `all`) for all in sync, 1 for the leader, 0 for none.

    otelcol's default is 1. With all, the producer is idempotent: repetitions neither double nor reorder messages.
    """
    compression: Literal["none", "gzip", "snappy", "lz4", "zstd"] = "none"
    compression_params: CompressionParamsConfig = CompressionParamsConfig.model_construct()
    flush_max_messages: Annotated[int, Field(ge=0, le=1_000_000)] = 10_000
    """The most messages of one request to a partition; 0 for the default."""
    linger: Duration = 0.01
    """Seconds to wait for more messages of a partition before a request is sent."""
    allow_auto_topic_creation: bool = True
    """Whether brokers may create a missing topic."""
    max_buffered_mib: Annotated[int, Field(ge=1, le=2048)] = 32
    """MiB of messages that wait for their confirmation. Further ones wait in the sending queue."""

    @field_validator("required_acks", mode="before")
    @classmethod
    def _all_is_a_number(cls, value: object) -> object:
        return {"all": -1, "-1": -1, "0": 0, "1": 1}.get(value, value) if isinstance(value, str) else value

    @model_validator(mode="after")
    def _linger_is_short(self) -> Self:
        if self.linger > 60:
            raise ValueError("linger must not be longer than 60s")
        return self


class StickyKeyConfig(Section):
    """A message with a key goes to the partition of the key. Others stay with a partition for a short time."""

    hasher: Literal["sarama_compat", "murmur2"] = "sarama_compat"
    """`sarama_compat` is FNV-1a, as in otelcol; `murmur2` is the hash of Kafka's Java client."""


class RecordPartitionerConfig(NamedSections):
    """How messages are assigned to partitions. At most one is set."""

    sticky_key: StickyKeyConfig | None = None
    round_robin: dict[str, Any] | None = None
    """Each message goes to the next partition, whatever its key is."""
    least_backup: dict[str, Any] | None = None
    """Each message goes to the partition with the fewest unconfirmed messages."""
    extension: str | None = None
    """Not supported."""

    @model_validator(mode="before")
    @classmethod
    def _null_means_defaults(cls, fields: Any) -> Any:
        if not isinstance(fields, Mapping):
            return {} if fields is None else fields
        return {name: {} if options is None and name != "extension" else options for name, options in fields.items()}

    @model_validator(mode="after")
    def _at_most_one(self) -> Self:
        if self.extension:
            raise ValueError("extension: partitioners of other extensions do not exist here; use sticky_key")
        if sum(strategy is not None for strategy in (self.sticky_key, self.round_robin, self.least_backup)) > 1:
            raise ValueError("set one of sticky_key, round_robin and least_backup")
        return self

    @property
    def hasher(self) -> str:
        return self.sticky_key.hasher if self.sticky_key else "sarama_compat"

    @property
    def kind(self) -> Literal["sticky_key", "round_robin", "least_backup"]:
        if self.round_robin is not None:
            return "round_robin"
        return "sticky_key" if self.least_backup is None else "least_backup"


class KafkaRetryConfig(RetryConfig):
    """When a failed attempt is repeated."""

    permanent_codes: tuple[Annotated[int, Field(ge=1, le=32767)], ...] = (32, 87)
    """The error codes of Kafka's protocol that drop messages at once: the broker finds their data invalid. Other errors
    are about rights, topics or settings: the messages are kept and sent again."""


class KafkaExporterConfig(KafkaClientConfig, RemoteExporterConfig):
    """The topics, the keys of messages, and the producer."""

    retry_on_failure: KafkaRetryConfig = KafkaRetryConfig.model_construct()

    metrics: MetricsTopicConfig = MetricsTopicConfig.model_construct()
    traces: TracesTopicConfig = TracesTopicConfig.model_construct()
    logs: LogsTopicConfig = LogsTopicConfig.model_construct()
    topic_from_attribute: str = ""
    """A resource attribute whose value is the topic, in place of the configured one. Empty for none."""
    include_metadata_keys: Annotated[list[str], AfterValidator(_no_metadata)] = Field(default_factory=list)
    """Not supported."""
    record_headers: SecretPairs = Field(default_factory=dict)
    """Headers of every message. Values are never printed."""
    partition_traces_by_id: bool = False
    """One message for each trace. Its key is the trace id, as 32 hexadecimal digits."""
    partition_metrics_by_resource_attributes: bool | list[str] = False
    """One message for each resource. Its key is a hash of all its attributes, or of those in a list."""
    partition_logs_by_resource_attributes: bool | list[str] = False
    """As for metrics."""
    partition_logs_by_trace_id: bool = False
    """As `partition_traces_by_id`. Log records without a trace have no key."""
    moving_bounds: MovingBounds = "exponential"
    """The form of histograms whose bounds differ from point to point, such as those of `ebpf` and `phases`:
    `exponential` histograms, `fixed` bounds by unit, or `as_is` if only otel-zernel reads the topic."""
    record_partitioner: RecordPartitionerConfig = RecordPartitionerConfig.model_construct()
    producer: ProducerConfig = ProducerConfig.model_construct()

    @model_validator(mode="before")
    @classmethod
    def _former_names_of_topics(cls, fields: Any) -> Any:
        """`topic` and `encoding` of all signals are former names."""
        if not isinstance(fields, Mapping):
            return fields
        old = {name: fields[name] for name in ("topic", "encoding") if fields.get(name) is not None}
        rest = {name: value for name, value in fields.items() if name not in ("topic", "encoding")}
        for signal in STABLE_SIGNALS if old else ():
            own = rest.get(signal)
            if own is None or isinstance(own, Mapping):
                rest[signal] = {**old, **(own or {})}
        return rest

    @model_validator(mode="after")
    def _keys_agree(self) -> Self:
        if self.partition_logs_by_trace_id and self.partition_logs_by_resource_attributes:
            raise ValueError(
                "partition_logs_by_trace_id and partition_logs_by_resource_attributes exclude each other: set one"
            )
        if self.timeout and self.producer.linger > self.timeout / 2:
            raise ValueError("producer::linger must not be longer than half of timeout")
        return self

    def topic_of(self, signal: Signal) -> SignalTopicConfig:
        """The topic and the encoding of a signal."""
        config: SignalTopicConfig = getattr(self, signal)
        return config
