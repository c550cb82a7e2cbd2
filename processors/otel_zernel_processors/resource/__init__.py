"""Adds, changes and removes resource attributes, and detects where the collector runs."""

from otel_zernel_processors.resource.processor import ResourceDetectionProcessor as ResourceDetectionProcessor
from otel_zernel_processors.resource.processor import ResourceProcessor as ResourceProcessor
