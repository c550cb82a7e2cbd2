"""Writes batches to a file, a line of OTLP JSON each, as the OpenTelemetry Collector's file exporter does."""

from otel_zernel_exporters.file.exporter import FileExporter

__all__ = ["FileExporter"]
