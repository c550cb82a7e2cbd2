"""The kafka receiver: reads OTLP from topics of Kafka, as a member of a consumer group."""

from otel_zernel_receivers.kafka.receiver import KafkaReceiver as KafkaReceiver
