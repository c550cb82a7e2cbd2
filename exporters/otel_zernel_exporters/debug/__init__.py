"""Prints the batches of a pipeline."""

from otel_zernel_exporters.debug.exporter import DebugExporter as DebugExporter
