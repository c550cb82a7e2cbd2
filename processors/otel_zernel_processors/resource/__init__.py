"""Sets, changes and removes attributes of resources, and finds out where the collector runs."""

from otel_zernel_processors.resource.processor import ResourceProcessor

__all__ = ["ResourceProcessor"]
