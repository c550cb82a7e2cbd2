"""Renames, copies, combines and scales metrics, and changes and aggregates their labels."""

from otel_zernel_processors.metricstransform.processor import MetricsTransformProcessor as MetricsTransformProcessor
