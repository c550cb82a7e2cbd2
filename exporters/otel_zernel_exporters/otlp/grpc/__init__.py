"""The exporter of OTLP over gRPC."""
