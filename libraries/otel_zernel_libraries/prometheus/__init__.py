"""Prometheus pages of OpenTelemetry metrics: names, labels, series, formats, and the HTTP application."""

from otel_zernel_libraries.prometheus.asgi import metrics_app as metrics_app
from otel_zernel_libraries.prometheus.formats import Format as Format
from otel_zernel_libraries.prometheus.formats import negotiate as negotiate
from otel_zernel_libraries.prometheus.options import Options as Options
from otel_zernel_libraries.prometheus.options import ResourceLabels as ResourceLabels
from otel_zernel_libraries.prometheus.options import TranslationStrategy as TranslationStrategy
from otel_zernel_libraries.prometheus.page import Page as Page
