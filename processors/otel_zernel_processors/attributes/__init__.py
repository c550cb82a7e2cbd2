"""Adds, changes, hashes, extracts and removes attributes of data points, spans and log records."""

from otel_zernel_processors.attributes.processor import AttributesProcessor as AttributesProcessor
