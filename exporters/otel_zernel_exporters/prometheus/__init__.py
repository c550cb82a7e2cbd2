"""Serves metrics on an HTTP page for Prometheus to scrape."""

from otel_zernel_exporters.prometheus.exporter import PrometheusExporter as PrometheusExporter
