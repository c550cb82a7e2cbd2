"""The csv receiver: recorded measurements become OTLP metrics, at many times the speed of reading them with Python."""

from otel_zernel_receivers.csv.receiver import CsvReceiver

__all__ = ["CsvReceiver"]
