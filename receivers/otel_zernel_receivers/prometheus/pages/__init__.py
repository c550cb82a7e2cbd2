"""The formats of metrics pages: text, OpenMetrics and protobuf."""
