"""The clients of Kafka, which the kafka exporter and the kafka receiver share. They need the extra `kafka`."""
