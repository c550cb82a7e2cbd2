"""OTLP over HTTP: the application that answers requests."""
