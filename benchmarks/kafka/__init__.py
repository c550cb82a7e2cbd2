"""The kafka exporter and receiver against bare loops of their client, with librdkafka's mock cluster."""
