"""The exporter of OTLP over HTTP."""
