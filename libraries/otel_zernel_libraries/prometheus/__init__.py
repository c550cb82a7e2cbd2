"""Prometheus pages of OpenTelemetry metrics: names, labels, series, formats, and the HTTP application."""

from otel_zernel_libraries.prometheus.asgi import metrics_app
from otel_zernel_libraries.prometheus.formats import Format, negotiate
from otel_zernel_libraries.prometheus.options import Options, ResourceLabels, TranslationStrategy
from otel_zernel_libraries.prometheus.page import Page

__all__ = ["Format", "Options", "Page", "ResourceLabels", "TranslationStrategy", "metrics_app", "negotiate"]
