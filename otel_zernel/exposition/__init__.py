"""Prometheus pages of OpenTelemetry metrics: names, labels, series, formats, and the HTTP application."""

from otel_zernel.exposition.asgi import metrics_app
from otel_zernel.exposition.formats import Format, negotiate
from otel_zernel.exposition.options import Options, ResourceLabels, TranslationStrategy
from otel_zernel.exposition.page import Page

__all__ = ["Format", "Options", "Page", "ResourceLabels", "TranslationStrategy", "metrics_app", "negotiate"]
