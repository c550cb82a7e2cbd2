"""Refuses data while the collector uses too much memory."""

from otel_zernel_processors.memory_limiter.processor import MemoryLimiterProcessor as MemoryLimiterProcessor
