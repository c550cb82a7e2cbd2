"""The configuration of the kafka receiver. Names are those of the OpenTelemetry Collector, and most defaults too."""

import re
from collections.abc import Iterable, Mapping
from typing import Annotated, Any, Final, Literal, Self

from pydantic import Field, field_validator, model_validator

from otel_zernel.batch import STABLE_SIGNALS, Signal
from otel_zernel.types import Duration, PositiveDuration, Ratio, Section
from otel_zernel_libraries.clients.kafka.client_config import Encoding, KafkaClientConfig, check_topic

SHARED_SYNTAX: Final = re.compile(
    r"""(?x)
    (?:
        (?: \\[][(){}.*+?|^$\\-]             # an escaped operator
          | \[\^?\]? (?: (?!--|&&|~~|\|\|) [^][\\] )* \]   # a set without escapes
          | [^][(){}*+?|^$\\] | \)           # a character, or the end of a group
        )
        (?: [*+?] | \{[0-9]{1,3}(?:,[0-9]{0,3})?\} )?
      | [|^$]
      | \( (?!\?)
    )*"""
)
"""POSIX's extended syntax, which the client uses, as far as Python's `re` finds the same topics with it."""


Strategy = Literal["cooperative-sticky", "range", "roundrobin"]


class SignalTopicsConfig(Section):
    """The topics of one signal."""

    topics: Annotated[list[str], Field(min_length=1)]
    """Names, and regular expressions that begin with `^`."""
    encoding: Encoding = "otlp_proto"
    """`otlp_proto`: bare OTLP messages. `otlp_json`: the same as JSON."""
    exclude_topics: list[str] = Field(default_factory=list)
    """Regular expressions of topics that are not read. Needs one in `topics`."""

    @model_validator(mode="before")
    @classmethod
    def _former_name(cls, fields: Any) -> Any:
        """`topic` is the former name of `topics`."""
        if not isinstance(fields, Mapping) or "topic" not in fields:
            return fields
        if "topics" in fields:
            raise ValueError("topic is the former name of topics: remove it")
        rest = {name: value for name, value in fields.items() if name != "topic"}
        return {**rest, "topics": [fields["topic"]]} if fields["topic"] else rest

    @field_validator("topics")
    @classmethod
    def _topics_are_names_or_patterns(cls, topics: list[str]) -> list[str]:
        for topic in topics:
            check_pattern(topic) if topic.startswith("^") else check_topic(topic)
        return topics

    @model_validator(mode="after")
    def _excluding_needs_patterns(self) -> Self:
        if self.exclude_topics and not any(topic.startswith("^") for topic in self.topics):
            raise ValueError("exclude_topics needs a regular expression in topics, which begins with ^")
        for pattern in self.exclude_topics:
            if not pattern:
                raise ValueError("exclude_topics: an empty text would exclude every topic; remove it")
            check_pattern(pattern)
            if "," in pattern:
                raise ValueError(f"exclude_topics: {pattern!r} must not have a comma; write two entries")
        return self


def check_pattern(pattern: str) -> None:
    """Raises `ValueError` if Python and Kafka's client do not both accept the text, with the same meaning."""
    if not SHARED_SYNTAX.fullmatch(pattern):
        raise ValueError(
            f"{pattern!r} is not a regular expression of POSIX, which Kafka's client needs: write [0-9] for \\d,"
            " [A-Za-z0-9_] for \\w, and no (?...), lazy operators or escapes in brackets"
        )
    try:
        re.compile(pattern)
    except re.error as error:
        raise ValueError(f"{pattern!r} is not a regular expression: {error}") from error


class MetricsTopicsConfig(SignalTopicsConfig):
    """The topics of metrics."""

    topics: Annotated[list[str], Field(min_length=1)] = Field(["otlp_metrics"])


class TracesTopicsConfig(SignalTopicsConfig):
    """The topics of spans."""

    topics: Annotated[list[str], Field(min_length=1)] = Field(["otlp_spans"])


class LogsTopicsConfig(SignalTopicsConfig):
    """The topics of log records."""

    topics: Annotated[list[str], Field(min_length=1)] = Field(["otlp_logs"])


class AutocommitConfig(Section):
    """When the offsets of taken records are committed."""

    enable: bool = True
    """Commit at an interval. If false, after each batch."""
    interval: PositiveDuration = 1.0
    """Seconds between two commits."""


class MessageMarkingConfig(Section):
    """When a record counts as taken."""

    after: bool = True
    """After the pipelines have accepted it: at least once. If false, before: at most once, as is otelcol's default."""
    on_error: bool = False
    """Whether a record that the pipelines refuse is lost after `error_backoff::max_elapsed_time`."""


class ErrorBackoffConfig(Section):
    """When records that the pipelines refuse are offered again."""

    enabled: bool = True
    """If false, records that are refused once are lost with `on_error`, and else offered again as if it were true."""
    initial_interval: PositiveDuration = 0.1
    """Seconds before the first repetition."""
    max_interval: PositiveDuration = 5.0
    """The longest interval in seconds, before randomization."""
    multiplier: Annotated[float, Field(ge=1)] = 1.5
    randomization_factor: Ratio = 0.5
    """The random share by which an interval is longer or shorter."""
    max_elapsed_time: Duration = 0.0
    """Seconds after which `on_error` applies; 0 for never."""


class HeaderExtractionConfig(Section):
    """Headers of records that become resource attributes."""

    extract_headers: bool = False
    headers: list[str] = Field(default_factory=list)
    """Names of headers. The attributes are `kafka.header.<name>`."""

    @property
    def names(self) -> tuple[str, ...]:
        """The headers to extract."""
        return tuple(self.headers) if self.extract_headers else ()


class PartitionProcessingConfig(Section):
    """How fetched records wait for the pipelines."""

    max_buffered_batches: Annotated[int, Field(ge=1, le=1000)] = 1
    """Fetched batches that wait while the pipelines take one. Beyond, the receiver pauses its partitions."""


class KafkaReceiverConfig(KafkaClientConfig):
    """The topics, the consumer group, and the handling of records."""

    metrics: MetricsTopicsConfig = MetricsTopicsConfig.model_construct()
    traces: TracesTopicsConfig = TracesTopicsConfig.model_construct()
    logs: LogsTopicsConfig = LogsTopicsConfig.model_construct()
    group_id: Annotated[str, Field(min_length=1)] = "otel-collector"
    """The consumer group. Its members share the partitions."""
    group_instance_id: str = ""
    """A name of this member that outlives restarts: its partitions then wait for it, for `session_timeout`."""
    initial_offset: Literal["latest", "earliest"] = "latest"
    """Where a group begins that has committed nothing."""
    session_timeout: PositiveDuration = 10.0
    """Seconds without a heartbeat after which the group gives the partitions of a member to others."""
    heartbeat_interval: PositiveDuration = 3.0
    """Seconds between two heartbeats."""
    group_rebalance_strategies: Annotated[list[Strategy], Field(min_length=1)] = Field(["cooperative-sticky"])
    """How a group divides partitions. `cooperative-sticky` cannot be mixed with the others."""
    min_fetch_size: Annotated[int, Field(ge=1, le=100_000_000)] = 1
    """Bytes that a broker collects before it answers, for at most `max_fetch_wait`."""
    max_fetch_size: Annotated[int, Field(ge=0, le=1_000_000_000)] = 1_048_576
    """The most bytes of one answer; 0 for any number. A larger message is read nevertheless."""
    max_partition_fetch_size: Annotated[int, Field(ge=1, le=1_000_000_000)] = 1_048_576
    """The most bytes of one partition in one answer. A larger message is read nevertheless."""
    max_fetch_wait: PositiveDuration = 0.25
    """Seconds that a broker waits for `min_fetch_size`."""
    autocommit: AutocommitConfig = AutocommitConfig.model_construct()
    message_marking: MessageMarkingConfig = MessageMarkingConfig.model_construct()
    error_backoff: ErrorBackoffConfig = ErrorBackoffConfig.model_construct()
    header_extraction: HeaderExtractionConfig = HeaderExtractionConfig.model_construct()
    partition_processing: PartitionProcessingConfig = PartitionProcessingConfig.model_construct()
    dead_letter_topic: str = ""
    """The topic for records that are not OTLP. Without one, they are counted and dropped."""

    @model_validator(mode="before")
    @classmethod
    def _former_names_of_topics(cls, fields: Any) -> Any:
        """`topic` and `encoding` of all signals, and `group_rebalance_strategy`, are former names."""
        if not isinstance(fields, Mapping):
            return fields
        rest = {name: value for name, value in fields.items() if name not in ("topic", "encoding")}
        old = {}
        if fields.get("topic"):
            old["topics"] = [fields["topic"]]
        if fields.get("encoding"):
            old["encoding"] = fields["encoding"]
        for signal in STABLE_SIGNALS if old else ():
            own = rest.get(signal)
            if own is None or isinstance(own, Mapping):
                rest[signal] = {**old, **(own or {})}
        return _with_strategies(rest)

    @field_validator("group_rebalance_strategies", mode="before")
    @classmethod
    def _strategies_exist(cls, strategies: object) -> object:
        if isinstance(strategies, Iterable) and "sticky" in strategies:
            raise ValueError(
                "Kafka's client does not support sticky; use cooperative-sticky, and no other in the group"
            )
        return strategies

    @field_validator("dead_letter_topic")
    @classmethod
    def _dead_letters_have_a_topic(cls, topic: str) -> str:
        return check_topic(topic) if topic else topic

    @model_validator(mode="after")
    def _keys_agree(self) -> Self:
        if len(self.group_rebalance_strategies) > 1 and "cooperative-sticky" in self.group_rebalance_strategies:
            raise ValueError(
                "group_rebalance_strategies: Kafka's client cannot mix cooperative-sticky with the others; set one of"
                " them"
            )
        if self.heartbeat_interval >= self.session_timeout:
            raise ValueError("heartbeat_interval must be shorter than session_timeout, usually a third of it")
        if 0 < self.max_fetch_size < self.min_fetch_size:
            raise ValueError("max_fetch_size must not be less than min_fetch_size")
        topics = {topic for signal in STABLE_SIGNALS for topic in self.topics_of(signal).topics}
        if self.dead_letter_topic in topics:
            raise ValueError("dead_letter_topic must not be a topic that the receiver reads")
        return self

    def topics_of(self, signal: Signal) -> SignalTopicsConfig:
        """The topics and the encoding of a signal."""
        config: SignalTopicsConfig = getattr(self, signal)
        return config


def _with_strategies(fields: dict[str, Any]) -> dict[str, Any]:
    old = fields.pop("group_rebalance_strategy", None)
    if not old:
        return fields
    if fields.get("group_rebalance_strategies"):
        raise ValueError("group_rebalance_strategy is the former name of group_rebalance_strategies: remove one")
    return {**fields, "group_rebalance_strategies": [old]}
