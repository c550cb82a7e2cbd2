"""The kafka exporter: writes OTLP into topics of Kafka, as the OpenTelemetry Collector does."""

from otel_zernel_exporters.kafka.exporter import KafkaExporter as KafkaExporter
