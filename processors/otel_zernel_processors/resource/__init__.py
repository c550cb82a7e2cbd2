"""Adds, changes and removes resource attributes, and detects where the collector runs."""

from otel_zernel_processors.resource.processor import ResourceDetectionProcessor, ResourceProcessor

__all__ = ["ResourceDetectionProcessor", "ResourceProcessor"]
