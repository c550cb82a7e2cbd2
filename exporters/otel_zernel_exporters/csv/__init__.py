"""Writes the metrics of GPUs as CSV, in the long layout of dcgm-exporter."""

from otel_zernel_exporters.csv.exporter import CsvExporter as CsvExporter
