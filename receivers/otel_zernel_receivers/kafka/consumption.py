"""What the thread of a consumer and the event loop share."""

from dataclasses import dataclass

from otel_zernel.component import Context
from otel_zernel_receivers.kafka.config import KafkaReceiverConfig
from otel_zernel_receivers.kafka.fetches import Fetches
from otel_zernel_receivers.kafka.measuring import ConsumerMetrics
from otel_zernel_receivers.kafka.topics import Topics


@dataclass(frozen=True, slots=True)
class Consumption:
    """The way of the records of one consumer into the pipelines."""

    config: KafkaReceiverConfig
    topics: Topics
    fetches: Fetches
    metrics: ConsumerMetrics
    context: Context
