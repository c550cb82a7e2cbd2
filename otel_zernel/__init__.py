"""otel-zernel: an OpenTelemetry collector for machine-learning training."""

__version__ = "0.1.0"
