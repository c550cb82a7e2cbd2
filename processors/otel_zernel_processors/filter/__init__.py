"""Drops metrics, data points, spans and log records that meet conditions."""

from otel_zernel_processors.filter.processor import FilterProcessor as FilterProcessor
