"""Writes metrics to Prometheus, Mimir, VictoriaMetrics and others, by remote write."""

from otel_zernel_exporters.prometheusremotewrite.exporter import (
    PrometheusRemoteWriteExporter as PrometheusRemoteWriteExporter,
)
