"""Joins small batches into larger ones."""

from otel_zernel_processors.batch.processor import BatchProcessor as BatchProcessor
