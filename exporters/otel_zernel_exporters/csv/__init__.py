"""Writes the metrics of GPUs as CSV, in dcgm-exporter's long layout."""

from otel_zernel_exporters.csv.exporter import CsvExporter

__all__ = ["CsvExporter"]
