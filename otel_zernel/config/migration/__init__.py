"""Hints for users of the OpenTelemetry Collector: names that do not exist here, and the words to write instead."""

from otel_zernel.config.migration.hints import hint

__all__ = ["hint"]
