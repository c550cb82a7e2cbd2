"""Keeps the live state of a training, and serves it as JSON and as a stream of changes."""

from otel_zernel_exporters.live.exporter import LiveExporter as LiveExporter
