"""Writes batches to a file as OTLP JSON or protobuf, like the OpenTelemetry Collector's file exporter."""

from otel_zernel_exporters.file.exporter import FileExporter as FileExporter
