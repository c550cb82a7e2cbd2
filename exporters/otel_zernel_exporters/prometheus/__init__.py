"""Shows metrics to Prometheus: a page over HTTP, for it to scrape."""

from otel_zernel_exporters.prometheus.exporter import PrometheusExporter

__all__ = ["PrometheusExporter"]
